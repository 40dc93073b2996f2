"""What a sleeping process waits for: which lock, which descriptor, who is at the other end, and since when.

The kernel tells the arguments of the system call that a thread sleeps in to whoever may trace it; the rest follows from
them. Whoever may not is told the kind of wait at most.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import platform
import socket
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from antifreeze.machine.processes import call_of, facts_in_stat, process_facts
from antifreeze.machine.reading import lines, listing

# How to read the arguments, by the number of the call; of all other calls that wait for files, the first is the descriptor.
_SHAPES = {
    "x86_64": {"futex": (202, 455), "file lock": (72, 73), "poll": (7, 271), "epoll": (232, 281, 441)},
    "aarch64": {"futex": (98, 455), "file lock": (25, 32), "poll": (73,), "epoll": (22, 441)},
}
_PRIVATE_FUTEX = 0x80
_SHARED = "shared lock"
_MOST_POLLED = 64
_LISTENS = "0A"


@dataclass(frozen=True, slots=True)
class Wait:
    """What the main thread of a process waits for."""

    kind: str | None
    """As `ProcessFacts.waits_in`."""
    channel: str
    """The kernel's name for where it waits."""
    lock: str = ""
    """The futex or the locked file; equal for two processes only if they wait for the same one."""
    is_shared: bool = False
    """Whether the futex lies in memory that processes share."""
    files: tuple[str, ...] = ()
    """The descriptors that would end the wait, by their names: `pipe:[123]`, `socket:[456]`, a path."""
    holders: tuple[int, ...] = ()
    """Who has locked the file."""


def wait_of(pid: int) -> Wait:
    """What a process waits for, as far as we may know."""
    facts = process_facts(pid)
    kind = facts.waits_in if facts else None
    channel = "".join(lines(f"/proc/{pid}/wchan")).removeprefix("0")  # 0: it does not wait, or we may not know
    call = call_of(pid)
    if kind is None or call is None:
        return Wait(kind, channel)
    number, arguments = call
    shapes = _SHAPES.get(platform.machine(), {})
    match next((shape for shape, numbers in shapes.items() if number in numbers), None):
        case "futex":
            lock = _futex(pid, arguments[0], arguments[1])
            return Wait(kind, channel, lock=lock, is_shared=lock.startswith(_SHARED))
        case "file lock":
            return Wait(kind, channel, lock=_name(pid, arguments[0]), holders=_holders(pid, arguments[0]))
        case "poll":
            return Wait(kind, channel, files=_names(pid, _polled(pid, arguments[0], arguments[1])))
        case "epoll":
            return Wait(kind, channel, files=_names(pid, _watched(pid, arguments[0])))
    return Wait(kind, channel, files=_names(pid, [arguments[0]]) if kind in ("socket", "pipe", "disk") else ())


def open_names(pid: int) -> set[str]:
    """The names of what a process has open: `pipe:[123]`, `socket:[456]`, a path."""
    return set(_names(pid, map(int, listing(f"/proc/{pid}/fd"))))


def holds_open(pid: int, name: str, *, for_writing: bool) -> bool:
    """Whether a process has the file of this name (`pipe:[123]`) open in this direction."""
    wanted = (os.O_WRONLY, os.O_RDWR) if for_writing else (os.O_RDONLY, os.O_RDWR)
    return any(_access_mode(pid, fd) in wanted for fd in listing(f"/proc/{pid}/fd") if _name(pid, int(fd)) == name)


def peer_of(pid: int, name: str) -> str:
    """The other end of a socket of a process, by its name (`socket:[456]`): an address, or nothing if it has none."""
    inode = name.removeprefix("socket:[").removesuffix("]")
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in lines(f"/proc/{pid}/net/{table}")[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9] == inode:
                return f"whoever connects to {_address(fields[1])}" if fields[3] == _LISTENS else _address(fields[2])
    for line in lines(f"/proc/{pid}/net/unix")[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and fields[6] == inode:
            return fields[7]
    return ""


def asleep_s(pids: Iterable[int]) -> dict[int, float]:
    """For how long, at least, the main threads of these processes have not run at all; who is not there is not known.

    The kernel notes when a thread last ran on the clock of the processor that it ran on, which can be seconds apart from
    that of another one. So we go there and look what time it is.
    """
    if sys.platform != "linux":
        return {}
    ours = os.sched_getaffinity(0)
    found = {}
    try:
        for pid in pids:
            seen, ran = facts_in_stat(pid), _last_ran_ms(f"/proc/{pid}/sched")
            if seen is None or ran is None or seen.state not in "SDT" or seen.processor not in ours:
                continue
            with contextlib.suppress(OSError):  # a processor that has been taken away
                os.sched_setaffinity(0, {seen.processor})
                now = _last_ran_ms("/proc/thread-self/sched")
                if now is not None:
                    found[pid] = max(0.0, now - ran) / 1000
    finally:
        os.sched_setaffinity(0, ours)
    return found


def _last_ran_ms(path: str) -> float | None:
    line = next((line for line in lines(path) if line.startswith("se.exec_start")), None)
    return None if line is None else float(line.split(":")[1])


def _futex(pid: int, address: int, operation: int) -> str:
    for line in lines(f"/proc/{pid}/maps"):
        place, rights, offset, device, inode, *_ = line.split(maxsplit=5)
        start, end = (int(number, 16) for number in place.split("-"))
        if start <= address < end and "s" in rights and not operation & _PRIVATE_FUTEX:
            return f"{_SHARED} {device}:{inode}+{int(offset, 16) + address - start:#x}"
    return f"lock {address:#x} of {pid}"


def _polled(pid: int, address: int, count: int) -> list[int]:
    """The descriptors in an array of `struct pollfd`."""
    count = min(count, _MOST_POLLED)
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            array = os.pread(memory.fileno(), 8 * count, address)
    except OSError:
        return []
    return [fd for fd, _, _ in struct.iter_unpack("=ihh", array[: len(array) // 8 * 8])]


def _watched(pid: int, epoll: int) -> list[int]:
    return [int(line.split()[1]) for line in lines(f"/proc/{pid}/fdinfo/{epoll}") if line.startswith("tfd:")]


def _names(pid: int, fds: Iterable[int]) -> tuple[str, ...]:
    return tuple(name for fd in fds if (name := _name(pid, fd)))


def _name(pid: int, fd: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    return ""


def _access_mode(pid: int, fd: str) -> int | None:
    flags = next((line for line in lines(f"/proc/{pid}/fdinfo/{fd}") if line.startswith("flags:")), None)
    return None if flags is None else int(flags.split()[1], 8) & os.O_ACCMODE


def _holders(pid: int, fd: int) -> tuple[int, ...]:
    try:
        inode = str(os.stat(f"/proc/{pid}/fd/{fd}").st_ino)
    except OSError:
        return ()
    granted = (line.split() for line in lines("/proc/locks") if "->" not in line)
    return tuple(int(each[4]) for each in granted if each[5].rpartition(":")[2] == inode)


def _address(text: str) -> str:
    """`0100007F:0016` → `127.0.0.1:22`; the kernel writes addresses as words in the order of the machine."""
    address, port = text.split(":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    host = socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)
    mapped = ipaddress.IPv6Address(host).ipv4_mapped if ":" in host else None
    host = str(mapped) if mapped else f"[{host}]" if ":" in host else host
    return f"{host}:{int(port, 16)}"


def open_appended(pid: int, part_of_name: str) -> int | None:
    """A descriptor to read a file with that a process only ever appends to; None if it has none of this name."""
    for fd in listing(f"/proc/{pid}/fd"):
        if part_of_name in _name(pid, int(fd)) and _access_mode(pid, fd) == os.O_WRONLY:
            with contextlib.suppress(OSError):
                return os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    return None
