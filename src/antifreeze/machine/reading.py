"""Reads files of the kernel's; where there is none, there is nothing in it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []


def listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def entry(path: Path, name: str) -> int | None:
    """The number after this name, in a file of names and numbers."""
    for line in lines(str(path)):
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def number(directory: Path, *names: str) -> int | None:
    """The number in the first of these files that holds one."""
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            return int((directory / name).read_text(errors="replace"))
    return None


def cgroups(controller: str) -> list[Path]:
    """The directories of the cgroups that limit us, from ours up to the root."""
    for line in lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            root = Path("/sys/fs/cgroup", controller if controllers else "")
            here = Path(path.strip().lstrip("/"))
            return [root / part for part in (here, *here.parents)]
    return []
