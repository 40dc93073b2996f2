"""What this machine and this process are like: the only file that reads `/proc` and `/sys`.

Everything here answers on any system; where the answer cannot be had, it is the harmless one.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

_UNLIMITED = 1 << 62


def is_linux() -> bool:
    """Whether our engine can run here at all."""
    return sys.platform == "linux"


def available_memory() -> int:
    """Bytes that can still be had here: the machine's, or what the cgroups leave of it."""
    return min(_machine_available(), *_cgroup_headrooms())


def _machine_available() -> int:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        line = next(line for line in _lines("/proc/meminfo") if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    return _UNLIMITED


def _cgroup_headrooms() -> list[int]:
    """Limit minus use, for every memory cgroup from ours up to the root; page cache counts as free."""
    headrooms = [_UNLIMITED]
    for directory in _memory_cgroups():
        limit = _number(directory, "memory.max", "memory.limit_in_bytes")
        used = _number(directory, "memory.current", "memory.usage_in_bytes")
        if limit is None or used is None or limit >= _UNLIMITED:
            continue
        headrooms.append(max(0, limit - used + _reclaimable(directory)))
    return headrooms


def _memory_cgroups() -> list[Path]:
    for line in _lines("/proc/self/cgroup"):
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
        for line in _lines(str(directory / "memory.stat")):
            name, value = line.split()
            values[name.removeprefix("total_")] = int(value)
    return sum(values.get(name, 0) for name in ("inactive_file", "active_file", "slab_reclaimable"))


def _number(directory: Path, *names: str) -> int | None:
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            return int((directory / name).read_text())
    return None


def descriptor_limit() -> int:
    """How many descriptors this process may have open."""
    try:
        import resource  # noqa: PLC0415 - not on every system

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except ImportError:
        return 256


def umask() -> int | None:
    """The file mode mask, read without changing it (the call that sets it is the only one there is)."""
    for line in _lines("/proc/self/status"):
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return None


def open_again(fd: int, flags: int) -> int:
    """The same open file once more, with an offset, flags and owner of its own."""
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)


def give_own_offsets() -> None:
    """Re-open every inherited read-only regular file in place.

    A fork shares open files, offset included: two workers that read through one of them read each other's bytes.
    """
    import fcntl  # noqa: PLC0415 - not on every system, and needed in forked workers only

    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone, or a file may not be opened any more
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            if flags & os.O_ACCMODE != os.O_RDONLY or not stat.S_ISREG(os.fstat(fd).st_mode):
                continue
            offset = os.lseek(fd, 0, os.SEEK_CUR)
            fresh = open_again(fd, flags)
            try:
                os.lseek(fresh, offset, os.SEEK_SET)
                os.dup2(fresh, fd, inheritable=os.get_inheritable(fd))
            finally:
                os.close(fresh)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
