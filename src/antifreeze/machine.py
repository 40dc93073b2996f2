"""What this machine and this process are like: the only file that reads `/proc` and `/sys`.

Everything here answers on any system; where the answer cannot be had, it is the harmless one.
"""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_UNLIMITED = 1 << 62
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
# The system calls that a stuck worker sits in, by number; of "file", the descriptor tells what is waited for.
_SYSCALLS = {
    "x86_64": {
        "lock": (202, 449, 455),
        "socket": (42, 43, 44, 45, 46, 47, 288, 299, 307),
        "poll": (7, 23, 232, 270, 271, 281, 441),
        "sleep": (35, 230),
        "disk": (74, 75, 76, 77, 257),
        "file": (0, 1, 17, 18, 19, 20, 295, 296),
    },
    "aarch64": {
        "lock": (98, 449, 455),
        "socket": (202, 203, 206, 207, 211, 212, 242, 243, 269),
        "poll": (22, 72, 73, 441),
        "sleep": (101, 115),
        "disk": (45, 46, 56, 82, 83),
        "file": (63, 64, 65, 66, 67, 68, 69, 70),
    },
}
# Where the kernel does not say which system call it is: parts of the names of the functions that it waits in.
_WAIT_CHANNELS = {
    "futex": "lock",
    "pipe": "pipe",
    "unix": "socket",
    "sk_": "socket",
    "skb_": "socket",
    "inet": "socket",
    "tcp": "socket",
    "poll": "poll",
    "select": "poll",
    "nanosleep": "sleep",
    "folio": "disk",
    "page_bit": "disk",
    "io_schedule": "disk",
    "bit_wait": "disk",
    "nfs": "disk",
    "rpc_": "disk",
    "request_wait_answer": "disk",
}


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
            return int((directory / name).read_text(errors="replace"))
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


def started_with(variable: str) -> str | None:
    """The value that an environment variable had when this process was started, whatever it has been set to since."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry).get(os.fsencode(variable))
    return None if found is None else os.fsdecode(found)


def thread_names() -> list[str]:
    """What the kernel calls the threads of this process, those of native libraries included."""
    return [name for task in _listing("/proc/self/task") for name in _lines(f"/proc/self/task/{task}/comm")]


def open_again(fd: int, flags: int) -> int:
    """The same open file once more, with an offset, flags and owner of its own."""
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)


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


class MappedFile(NamedTuple):
    """A stretch of this process's memory that is mapped from a file with a name."""

    start: int
    end: int
    path: str
    offset: int
    """Where in the file it starts."""
    device: int
    inode: int
    is_shared: bool
    """Whether what is written there is written into the file."""


def mapped_files() -> list[MappedFile]:
    """All of this process, in the order of their addresses."""
    found = []
    for line in _lines("/proc/self/maps"):
        place, rights, offset, device, inode, *name = line.split(maxsplit=5)
        if name and name[0].startswith("/") and not name[0].endswith(" (deleted)"):
            start, end = (int(number, 16) for number in place.split("-"))
            major, minor = (int(number, 16) for number in device.split(":"))
            number = os.makedev(major, minor)
            found.append(MappedFile(start, end, name[0], int(offset, 16), number, int(inode), "s" in rights))
    return found


def own_bytes(start: int, end: int) -> int | None:
    """How much of this memory, which is mapped from a file, the process has written and has for itself; None: unknown."""
    found = None
    is_there = False
    for line in _lines("/proc/self/smaps"):
        key, _, fact = line.partition(" ")
        if not key.endswith(":"):
            first, last = (int(number, 16) for number in key.split("-"))
            is_there = first < end and start < last
        elif is_there and key in ("Anonymous:", "Swap:"):  # written and in memory; written and put away
            found = (found or 0) + (int(fact.split()[0]) << 10)
    return found


class Mapping(NamedTuple):
    """A stretch of this process's memory that is its own and no file's."""

    start: int
    end: int


class Memory(NamedTuple):
    """What has become of the memory of a forked process; all in bytes."""

    inherited: int
    """What it has from its parent, written or not."""
    copied: int
    """How much of that it has written to, and has a copy of its own of."""
    own: int
    """What it has got since, and has written to."""


def private_mappings() -> list[Mapping]:
    """The stretches of this process's memory that a forked child would get a copy of when it writes to them."""
    return [
        Mapping(*(int(number, 16) for number in place.split("-")))
        for place, rights, _, _, inode, *_ in map(str.split, _lines("/proc/self/maps"))
        if "w" in rights and "p" in rights and inode == "0"
    ]


def memory_since(fork: Iterable[Mapping]) -> Memory | None:
    """What has become of this process's memory, which had these mappings when it was forked; None: nobody knows.

    Several times as quick as `smaps`, which finds the same.
    """
    inherited = copied = 0
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            for mapping in fork:
                for start in range(mapping.start, mapping.end, _PAGES_AT_ONCE * _PAGE_BYTES):
                    pages = min(_PAGES_AT_ONCE, (mapping.end - start) // _PAGE_BYTES)
                    entries = os.pread(pagemap.fileno(), 8 * pages, start // _PAGE_BYTES * 8)
                    flags = entries[_HIGHEST_BYTE::8]
                    inherited += flags.count(_PRESENT) + flags.count(_PRESENT | _EXCLUSIVE)
                    copied += flags.count(_PRESENT | _EXCLUSIVE)
        _, resident, of_files, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except OSError:
        return None
    own = max(0, resident - of_files - inherited)
    return Memory(inherited * _PAGE_BYTES, copied * _PAGE_BYTES, own * _PAGE_BYTES)


# What the kernel says of a page is a number of 64 bits, and these are of its highest byte: the page is there, and it is
# nobody else's. Pages of files have another bit, too, and are not meant.
_PRESENT, _EXCLUSIVE = 0x80, 0x01
_HIGHEST_BYTE = 7 if sys.byteorder == "little" else 0
_PAGES_AT_ONCE = 1 << 17


def faulted_bytes() -> int:
    """How much memory this process has had to be given, or to copy, since it was forked: at most, in whole pages."""
    import resource  # noqa: PLC0415 - not on every system, and needed in workers only

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * _PAGE_BYTES


def waited_for_processor_s() -> float:
    """How long the main thread of this process could have run and had no processor, since it was forked; 0: unknown."""
    return next((int(line.split()[1]) / 1e9 for line in _lines("/proc/self/schedstat")), 0.0)


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


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What the kernel knows about a process at this moment."""

    state: str
    """The kernel's letter: R runs, S sleeps, D sleeps and cannot be woken, T is stopped, t is traced, Z has ended."""
    cpu_s: float
    """Processor time of all its threads so far."""
    io_bytes: int
    """Bytes read and written so far, from files, pipes and sockets; 0 if that is not for us to see."""
    tracer_pid: int
    """Who debugs it; 0: nobody."""
    waits_in: str | None
    """What its main thread waits for: lock, socket, pipe, poll, sleep or disk; None: something else, or nothing."""


class GroupFacts(NamedTuple):
    """What a process and all that it started have used; a change of either number means that something works."""

    cpu_s: float
    io_bytes: int


class _Stat(NamedTuple):
    state: str
    parent: int
    group: int
    cpu_s: float
    reaped_cpu_s: float


def process_facts(pid: int) -> ProcessFacts | None:
    """What there is to know about a process; None if there is none (or no `/proc`)."""
    seen = _stat_of(pid)
    if seen is None:
        return None
    tracer = next((line for line in _lines(f"/proc/{pid}/status") if line.startswith("TracerPid:")), "TracerPid: 0")
    return ProcessFacts(
        state=seen.state,
        cpu_s=seen.cpu_s,
        io_bytes=_io_bytes(pid),
        tracer_pid=int(tracer.split()[1]),
        waits_in=_waits_in(pid, seen.state),
    )


def facts_of_groups(pids: Iterable[int]) -> dict[int, GroupFacts]:
    """What the groups that these processes lead, and all children of their members, have used; all in one look."""
    known = {number: seen for number in _numbers_in_proc() if (seen := _stat_of(number)) is not None}
    facts = {}
    for pid in pids:
        members = {number for number, seen in known.items() if pid in (number, seen.group)}
        while more := {number for number, seen in known.items() if seen.parent in members} - members:
            members |= more
        if members:
            # With the children that have ended: their time must not seem to be taken back.
            cpu_s = sum(known[number].cpu_s + known[number].reaped_cpu_s for number in members)
            facts[pid] = GroupFacts(cpu_s, sum(map(_io_bytes, members)))
    return facts


def _numbers_in_proc() -> list[int]:
    return [int(name) for name in _listing("/proc") if name.isdigit()]


def _listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _stat_of(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # a name can hold spaces and brackets
    user, system, reaped_user, reaped_system = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15])
    return _Stat(fields[0], int(fields[1]), int(fields[2]), user + system, reaped_user + reaped_system)


def _io_bytes(pid: int) -> int:
    return sum(int(line.split()[1]) for line in _lines(f"/proc/{pid}/io") if line.startswith(("rchar:", "wchar:")))


def _waits_in(pid: int, state: str) -> str | None:
    if state not in "SD":
        return None
    by_call = _waits_in_call(pid)
    if by_call is not None:
        return by_call
    channel = "".join(_lines(f"/proc/{pid}/wchan"))
    by_channel = next((word for part, word in _WAIT_CHANNELS.items() if part in channel), None)
    return by_channel or ("disk" if state == "D" else None)


def _waits_in_call(pid: int) -> str | None:
    call = " ".join(_lines(f"/proc/{pid}/syscall")).split()  # number and arguments; or "running"
    if len(call) < 2 or not call[0].isdigit():
        return None
    words = _SYSCALLS.get(platform.machine(), {})
    word = next((word for word, numbers in words.items() if int(call[0]) in numbers), None)
    return _kind_of_file(pid, int(call[1], 16)) if word == "file" else word


def _kind_of_file(pid: int, fd: int) -> str | None:
    try:
        target = os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return None
    kind = target.partition(":")[0]
    if kind in ("socket", "pipe"):
        return kind
    return "disk" if target.startswith("/") and not target.startswith("/dev/") else None


def oom_kills() -> int | None:
    """How many processes of our cgroup the kernel has killed for lack of memory; None if nobody counts them.

    Where cgroups do not count, those of the whole machine. The kernel counts before it kills: a death that is seen is
    counted already.
    """
    for directory in _memory_cgroups():  # ours first; those above count the kills of our neighbours, too
        for name in ("memory.events", "memory.oom_control"):
            count = _entry(directory / name, "oom_kill")
            if count is not None:
                return count
    return _entry(Path("/proc/vmstat"), "oom_kill")


def memory_facts() -> str:
    """The memory that there is and how much of it is in use, in words; empty if nothing is known."""
    limits = []
    for directory in _memory_cgroups():
        limit = _number(directory, "memory.max", "memory.limit_in_bytes")
        used = _number(directory, "memory.current", "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < _UNLIMITED:
            limits.append((limit, used))
    if limits:
        limit, used = min(limits)
        return f"memory limit of this cgroup {limit >> 20} MB, in use {used >> 20} MB"
    total, available = _entry(Path("/proc/meminfo"), "MemTotal:"), _entry(Path("/proc/meminfo"), "MemAvailable:")
    if total is None or available is None:
        return ""
    return f"memory of this machine {total >> 10} MB, in use {(total - available) >> 10} MB"


def _entry(path: Path, name: str) -> int | None:
    """The number after this name, in a file of names and numbers."""
    for line in _lines(str(path)):
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []
