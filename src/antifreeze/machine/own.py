"""What this process is like: its limits, descriptors and environment."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from antifreeze.machine.reading import lines, listing

# Enough for what we may have to open at once: a batch, a process, a file of the ledger, a module to import.
FEW_DESCRIPTORS = 8
_WORST_OOM_SCORE = 1000


def is_linux() -> bool:
    """Whether our engine can run here at all."""
    return sys.platform == "linux"


def descriptor_limit() -> int:
    """How many descriptors this process may have open."""
    try:
        import resource  # noqa: PLC0415 - not on every system

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except ImportError:
        return 256


def descriptors_left() -> int:
    """How many more descriptors this process may open."""
    return descriptor_limit() - len(listing("/proc/self/fd"))


def is_nearly_out_of_descriptors(latest: int) -> bool:
    """Whether few more can be opened, judged by the number of the one that was opened last: it is the lowest free one."""
    return latest + FEW_DESCRIPTORS >= descriptor_limit()


def file_size_limit() -> int | None:
    """How large a file may become that this process writes, in bytes (`ulimit -f`); None: there is no limit."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def raise_oom_score(by: int) -> None:
    """Have the kernel end this process before others when memory runs out; so it is for all that this process starts.

    Every process may do this to itself. Where it cannot be done, nothing changes.
    """
    path = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        path.write_text(str(min(_WORST_OOM_SCORE, int(path.read_text()) + by)))


def umask() -> int | None:
    """The file mode mask, read without changing it (the call that sets it is the only one there is)."""
    for line in lines("/proc/self/status"):
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return None


def started_with(variable: str) -> str | None:
    """The value that an environment variable had when this process was started, whatever it has been set to since."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry).get(os.fsencode(variable))
    return None if found is None else os.fsdecode(found)


def open_again(fd: int, flags: int) -> int:
    """The same open file once more, with an offset, flags and owner of its own."""
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)


def why_not_again() -> str | None:
    """Why this process cannot open its own files once more; None if it can."""
    ends = os.pipe()
    try:
        os.close(open_again(ends[0], os.O_RDONLY | os.O_NONBLOCK))
    except (FileNotFoundError, NotADirectoryError):
        return "/proc is not mounted here"
    except PermissionError:
        return "this process may not look into its own /proc/self/fd (it is not dumpable: its program has capabilities)"
    finally:
        for fd in ends:
            os.close(fd)
    return None


def path_of(fd: int) -> str:
    """The name of an open file, as the kernel knows it now."""
    return os.readlink(f"/proc/self/fd/{fd}")


def has_open(wanted: os.stat_result) -> bool:
    """Whether this very file is open in this process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone
            found = os.fstat(int(name))
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False


def waited_for_processor_s() -> float:
    """How long the main thread of this process could have run and had no processor, since it was forked; 0: unknown."""
    return next((int(line.split()[1]) / 1e9 for line in lines("/proc/self/schedstat")), 0.0)


def give_own_offsets() -> None:
    """Re-open every inherited read-only regular file in place.

    A fork shares open files, offset included: two workers that read through one of them read each other's bytes. It shares
    the locks of `flock`, too: a file that is locked for writing is left alone, for one of its own would be locked out.
    """
    import fcntl  # noqa: PLC0415 - not on every system, and needed in forked workers only

    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone, or a file may not be opened any more
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            if flags & os.O_ACCMODE != os.O_RDONLY or not stat.S_ISREG(os.fstat(fd).st_mode):
                continue
            if any(line.startswith("lock:") and " WRITE " in line for line in lines(f"/proc/self/fdinfo/{fd}")):
                continue
            offset = os.lseek(fd, 0, os.SEEK_CUR)
            fresh = open_again(fd, flags)
            try:
                os.lseek(fresh, offset, os.SEEK_SET)
                os.dup2(fresh, fd, inheritable=os.get_inheritable(fd))
            finally:
                os.close(fresh)
