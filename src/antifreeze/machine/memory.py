"""How much memory there is, and how much of it the kernel has had to take from whom: cgroups, and the machine."""

from __future__ import annotations

import contextlib
from pathlib import Path

from antifreeze.machine.reading import entry, lines, number

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
    headrooms = [_UNLIMITED]
    for directory in _memory_cgroups():
        limit = number(directory, "memory.max", "memory.limit_in_bytes")
        used = number(directory, "memory.current", "memory.usage_in_bytes")
        if limit is None or used is None or limit >= _UNLIMITED:
            continue
        headrooms.append(max(0, limit - used + _reclaimable(directory)))
    return headrooms


def _memory_cgroups() -> list[Path]:
    for line in lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            root = Path("/sys/fs/cgroup", "memory" if controllers else "")
            here = Path(path.strip().lstrip("/"))
            return [root / part for part in (here, *here.parents)]
    return []


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
    for directory in _memory_cgroups():  # ours first; those above count the kills of our neighbours, too
        for name in ("memory.events", "memory.oom_control"):
            count = entry(directory / name, "oom_kill")
            if count is not None:
                return count
    return entry(Path("/proc/vmstat"), "oom_kill")


def memory_facts() -> str:
    """The memory that there is and how much of it is in use, in words; empty if nothing is known."""
    limits = []
    for directory in _memory_cgroups():
        limit = number(directory, "memory.max", "memory.limit_in_bytes")
        used = number(directory, "memory.current", "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < _UNLIMITED:
            limits.append((limit, used))
    if limits:
        limit, used = min(limits)
        return f"memory limit of this cgroup {limit >> 20} MB, in use {used >> 20} MB"
    total, available = entry(Path("/proc/meminfo"), "MemTotal:"), entry(Path("/proc/meminfo"), "MemAvailable:")
    if total is None or available is None:
        return ""
    return f"memory of this machine {total >> 10} MB, in use {(total - available) >> 10} MB"
