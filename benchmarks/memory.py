"""How much memory the processes of a loader take, beside that of the trainer or with it.

PSS (proportional set size) counts every page that a process has mapped and shares it out among those that map it. It
does not see shared memory that exists but that nobody has touched yet: 1 GiB in a file in memory would look like nothing.
So the figure here is PSS without shared memory, over all processes below this one, plus all shared memory that they or we
hold, counted once and whole. PSS as such is given as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Memory:
    processes: int
    pss_bytes: int
    whole_bytes: int
    """PSS of what is not shared memory, and all shared memory, once."""


def beside() -> Memory:
    """The memory of all processes below this one, and the shared memory that they and we hold."""
    others = sorted(below(os.getpid()))
    return memory_of(others, with_shared_memory_of=(os.getpid(), *others))


def everywhere() -> Memory:
    """The memory of this process and of all below it."""
    everybody = (os.getpid(), *sorted(below(os.getpid())))
    return memory_of(everybody, with_shared_memory_of=everybody)


def memory_of(processes: Iterable[int], *, with_shared_memory_of: Iterable[int]) -> Memory:
    rollups = [rollup for pid in processes if (rollup := rollup_of(pid))]
    pss = sum(rollup["Pss"] for rollup in rollups)
    shared = {}
    for pid in with_shared_memory_of:
        shared.update(shared_memory_of(pid))
    return Memory(len(rollups), pss, pss - sum(rollup["Pss_Shmem"] for rollup in rollups) + sum(shared.values()))


def below(root: int) -> set[int]:
    """All descendants of a process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(PROC):
        if name.isdigit() and (parent := parent_of(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    new = [root]
    while new:
        new = [child for pid in new for child in children.get(pid, ())]
        found.update(new)
    return found


def parent_of(pid: int) -> int | None:
    with suppress(OSError):
        return int((PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return None


def rollup_of(pid: int) -> dict[str, int]:
    """Sums over the mappings of a process, in bytes; empty if it is gone."""
    lines = []
    with suppress(OSError):
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    return {name: int(size.split()[0]) * 1024 for name, size in (line.split(":") for line in lines)}


def shared_memory_of(pid: int) -> dict[tuple[int, int], int]:
    """Allocated bytes of every file in memory that a process has open or mapped, by device and inode."""
    found = {}
    for path in (*entries(PROC / str(pid) / "fd"), *entries(PROC / str(pid) / "map_files")):
        with suppress(OSError):  # closed or unmapped meanwhile
            if os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                status = os.stat(path)
                found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found


def entries(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from folder.iterdir()
