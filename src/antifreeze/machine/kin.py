"""Who belongs together: a process, its ancestors and descendants, and what the kernel knows of each from its start on."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from antifreeze.machine.processes import facts_in_stat, numbers_in_proc
from antifreeze.machine.reading import entry, lines


@dataclass(frozen=True, slots=True)
class Kin:
    """A process among its relatives."""

    pid: int
    parent: int
    name: str
    """Of its main thread, at most 15 characters; torch's workers call themselves `pt_data_worker`."""
    command: tuple[str, ...]
    """Its command line; nothing: it has ended, or belongs to the kernel."""
    started_s: float
    """Since the machine was booted."""


def kin_of(pid: int) -> Kin | None:
    """One process; None if there is none."""
    seen = facts_in_stat(pid)
    if seen is None:
        return None
    words = _bytes_of(f"/proc/{pid}/cmdline").rstrip(b"\0").split(b"\0")
    return Kin(
        pid=pid,
        parent=seen.parent,
        name="".join(lines(f"/proc/{pid}/comm")),
        command=tuple(os.fsdecode(word) for word in words if word),
        started_s=seen.started_s,
    )


def descendants_of(pid: int) -> list[Kin]:
    """A process and all that descend from it, in the order in which they were started."""
    parents = {number: seen.parent for number in numbers_in_proc() if (seen := facts_in_stat(number)) is not None}
    members = {pid} & parents.keys()
    while more := {number for number, parent in parents.items() if parent in members} - members:
        members |= more
    found = [kin for number in members if (kin := kin_of(number)) is not None]
    return sorted(found, key=lambda kin: (kin.pid != pid, kin.started_s, kin.pid))


def environment_of(pid: int, names: Collection[str]) -> dict[str, str]:
    """Those of these variables that a process was started with; nothing if that is not for us to see."""
    entries = (os.fsdecode(each).partition("=") for each in _bytes_of(f"/proc/{pid}/environ").split(b"\0"))
    return {name: value for name, _, value in entries if name in names}


def started_with_variable(name: str, value: str) -> list[int]:
    """All processes that were started with this variable in their environment."""
    return [pid for pid in numbers_in_proc() if environment_of(pid, [name]).get(name) == value]


def directory_of(pid: int) -> str | None:
    """The working directory of a process; None if that is not for us to see."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")
    return None


def resident_bytes(pid: int) -> int:
    """How much of a process is in memory, what it shares with others included."""
    return (entry(Path(f"/proc/{pid}/status"), "VmRSS:") or 0) << 10


def age_s(kin: Kin) -> float:
    """For how long a process has been there."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - kin.started_s)


def has_mapped(pid: int, part_of_name: str) -> bool:
    """Whether a file with such a name is mapped in a process; False also if that is not for us to see."""
    return any(part_of_name in line for line in lines(f"/proc/{pid}/maps"))


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
