"""What this process may use: processors, shared memory, descriptors, and whom it may look into."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import NamedTuple

from antifreeze.machine.reading import cgroups, lines, number


class Room(NamedTuple):
    """A file system, in bytes."""

    total_bytes: int
    free_bytes: int


class Descriptors(NamedTuple):
    """How many files may be open at once; None: as many as one likes."""

    soft: int | None
    hard: int | None


def cpu_quota() -> float | None:
    """How many processors' worth of time the cgroups grant us; None: there is no limit."""
    granted = [_granted(directory) for directory in cgroups("cpu")]
    return min((time / period for time, period in granted if time > 0 and period > 0), default=None)


def _granted(directory: Path) -> tuple[int, int]:
    """Time that a cgroup may run for, and the period that this is granted anew in; not positive: no limit."""
    words = " ".join(lines(str(directory / "cpu.max"))).split()  # version 2: `200000 100000`, or `max 100000`
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]), int(words[1])
    return number(directory, "cpu.cfs_quota_us") or 0, number(directory, "cpu.cfs_period_us") or 0


def allowed_cpus() -> int:
    """The processors that the kernel may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cpus() -> int:
    """How many processors this process can keep busy at once, rounded up."""
    quota = cpu_quota()
    return allowed_cpus() if quota is None else max(1, min(allowed_cpus(), math.ceil(quota)))


def shared_memory_room(path: str = "/dev/shm") -> Room | None:
    """The file system that torch puts its batches into; None: there is none."""
    try:
        room = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return Room(room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize)


def descriptor_limits() -> Descriptors | None:
    """The soft and the hard limit of this process; None where there is no such thing."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Descriptors(*(None if limit == resource.RLIM_INFINITY else limit for limit in limits))


def process_limits() -> list[str]:
    """The limits on processes and threads that may be why none can be had, in words; those that are reached first."""
    reached: list[str] = []
    others: list[str] = []
    for directory in cgroups("pids"):
        most, there = number(directory, "pids.max"), number(directory, "pids.current")
        if most is not None and there is not None:
            text = f"the cgroup {directory} allows {most} processes and threads (pids.max), and has {there}"
            (reached if there >= most else others).append(text)
    return reached or [*others, *_process_limit_of_user()]


def _process_limit_of_user() -> list[str]:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return []
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    unlimited = most == resource.RLIM_INFINITY
    return [] if unlimited else [f"this user may have {most} processes and threads (ulimit -u, RLIMIT_NPROC)"]


def ptrace_scope() -> int | None:
    """How freely processes of one user may look into each other, in Yama's numbers; None: Yama is not asked."""
    return next((int(line) for line in lines("/proc/sys/kernel/yama/ptrace_scope") if line.isdigit()), None)
