"""How much memory there is, and how much of it the kernel has had to take from whom: cgroups, and the machine."""

from __future__ import annotations

import contextlib
from pathlib import Path

from antifreeze.machine.reading import cgroups, entry, lines, number

_UNLIMITED = 1 << 62


def available_memory() -> int:
    """Bytes that can still be had here: the machine's, or what the cgroups leave of it."""
    return min(_machine_available(), *_cgroup_headrooms())


def _machine_available() -> int:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        line = next(line for line in lines("/proc/meminfo") if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    return _UNLIMITED


def _cgroup_headrooms() -> list[int]:
    """Limit minus use, for every memory cgroup from ours up to the root; page cache counts as free."""
    limited = ((limit - used, directory) for limit, used, directory in _limits_and_uses())
    return [_UNLIMITED, *(max(0, left + _reclaimable(directory)) for left, directory in limited)]


def _reclaimable(directory: Path) -> int:
    """What the kernel takes back before it runs out: page cache (unless it is shared memory) and such."""
    values: dict[str, int] = {}
    with contextlib.suppress(ValueError):
        for line in lines(str(directory / "memory.stat")):
            name, value = line.split()
            values[name.removeprefix("total_")] = int(value)
    return sum(values.get(name, 0) for name in ("inactive_file", "active_file", "slab_reclaimable"))


def oom_kills() -> int | None:
    """How many processes of our cgroup the kernel has killed for lack of memory; None if nobody counts them.

    Where cgroups do not count, those of the whole machine. The kernel counts before it kills: a death that is seen is
    counted already.
    """
    for directory in cgroups("memory"):  # ours first; those above count the kills of our neighbours, too
        for name in ("memory.events", "memory.oom_control"):
            count = entry(directory / name, "oom_kill")
            if count is not None:
                return count
    return entry(Path("/proc/vmstat"), "oom_kill")


def memory_limit() -> int | None:
    """What our cgroups allow, in bytes; None: there is no limit."""
    return min((limit for limit, _, _ in _limits_and_uses()), default=None)


def total_memory() -> int | None:
    """All the memory that there is for us, in bytes: what our cgroups allow, or the machine has; None: unknown."""
    total = entry(Path("/proc/meminfo"), "MemTotal:")
    known = [limit for limit in (memory_limit(), None if total is None else total << 10) if limit is not None]
    return min(known, default=None)


def memory_facts() -> str:
    """The memory that there is and how much of it is in use, in words; empty if nothing is known."""
    limits = _limits_and_uses()
    if limits:
        limit, used, _ = min(limits)
        return f"memory limit of this cgroup {limit >> 20} MB, in use {used >> 20} MB"
    total, available = entry(Path("/proc/meminfo"), "MemTotal:"), entry(Path("/proc/meminfo"), "MemAvailable:")
    if total is None or available is None:
        return ""
    return f"memory of this machine {total >> 10} MB, in use {(total - available) >> 10} MB"


def _limits_and_uses() -> list[tuple[int, int, Path]]:
    """Of every memory cgroup from ours up to the root that has a limit."""
    found = []
    for directory in cgroups("memory"):
        limit = number(directory, "memory.max", "memory.limit_in_bytes")
        used = number(directory, "memory.current", "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < _UNLIMITED:
            found.append((limit, used, directory))
    return found
