"""The limits that a trial runs under: few descriptors, few processes, little memory.

Processes and memory are limited by control groups, which takes root and a hierarchy that can be written to (version 1 or
2). Where they cannot be had, the trial is played without them, and faults that need them are not drawn.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY_BYTES = 1 << 30
"""Enough for a fresh interpreter with torch beside the workers, and soon used up by a worker that leaks."""
DISSOLVE_S = 10.0
ROOT = Path("/sys/fs/cgroup")
FILES = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "processes": ("pids.max", "pids.max"),
}
CONTROLLER = {"memory": "memory", "processes": "pids"}


@contextmanager
def limited(limit: str | None, *, workers: int, window: int) -> Iterator[None]:
    """Play what follows under this limit."""
    if limit == "descriptors":
        with _few_descriptors(16 + 8 * workers + 4 * window):
            yield
    elif limit in CONTROLLER and can_limit(limit):
        value = MEMORY_BYTES if limit == "memory" else _tasks() + 2 * workers + 6
        with _group(limit, value):
            yield
    else:
        yield


def can_limit(limit: str) -> bool:
    """Whether a control group can be made for it here."""
    try:
        with _group(limit, 1 << 40 if limit == "memory" else 1 << 20):
            return True
    except OSError:
        return False


def join_memory_group(folder: str) -> None:
    """In a worker: move into a group of its own, with little memory, which the kernel enforces."""
    group = _parent("memory") / f"antifreeze-chaos-{os.getppid()}-{os.getpid()}"
    group.mkdir(exist_ok=True)
    _write_limit(group, "memory", MEMORY_BYTES // 8)
    (Path(folder) / f"group-{os.getpid()}").write_text(str(group))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def remove_groups_of(folder: Path) -> None:
    """Remove the groups that workers of this trial made for themselves."""
    for note in folder.glob("group-*"):
        group = Path(note.read_text())
        if group.exists():
            _dissolve(group, group.parent)


@contextmanager
def _few_descriptors(more: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, highest + more), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def _group(limit: str, value: int) -> Iterator[None]:
    parent = _parent(limit)
    group = parent / f"antifreeze-chaos-{os.getpid()}"
    group.mkdir()
    try:
        _write_limit(group, limit, value)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        _dissolve(group, parent)


def _dissolve(group: Path, parent: Path) -> None:
    """Move all processes out of a group, also a base that outlives the trial, and remove it."""
    deadline = time.monotonic() + DISSOLVE_S
    while True:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended
                (parent / "cgroup.procs").write_text(pid)
        try:
            group.rmdir()
            return
        except OSError:  # the kernel has not let go of a process that ended
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _write_limit(group: Path, limit: str, value: int) -> None:
    for name in FILES[limit]:
        if (group / name).exists():
            (group / name).write_text(str(value))
            return
    raise FileNotFoundError(f"{group} has none of {FILES[limit]}")


def _parent(limit: str) -> Path:
    """The group that this process is in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == CONTROLLER[limit]:
            return ROOT / controllers / path.strip("/")
        if not controllers and (ROOT / "cgroup.controllers").exists():
            return ROOT / path.strip("/")
    raise FileNotFoundError(f"no control group for {limit}")


def _tasks() -> int:
    return len(os.listdir("/proc/self/task"))
