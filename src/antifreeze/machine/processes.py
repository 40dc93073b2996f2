"""What the kernel knows about any process: its state, what it has used, what it waits for."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from antifreeze.machine.reading import lines, listing

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
    tracer = next((line for line in lines(f"/proc/{pid}/status") if line.startswith("TracerPid:")), "TracerPid: 0")
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


def processes_with(variable: str, value: str) -> list[int]:
    """Running processes that were started with this environment variable, or forked from one that was."""
    return [
        number
        for number in _numbers_in_proc()
        if number != os.getpid()
        and f"{variable}={value}" in "".join(lines(f"/proc/{number}/environ")).split("\0")
        and (seen := _stat_of(number)) is not None
        and seen.state not in "ZX"
    ]


def _numbers_in_proc() -> list[int]:
    return [int(name) for name in listing("/proc") if name.isdigit()]


def _stat_of(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # a name can hold spaces and brackets
    user, system, reaped_user, reaped_system = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15])
    return _Stat(fields[0], int(fields[1]), int(fields[2]), user + system, reaped_user + reaped_system)


def _io_bytes(pid: int) -> int:
    return sum(int(line.split()[1]) for line in lines(f"/proc/{pid}/io") if line.startswith(("rchar:", "wchar:")))


def _waits_in(pid: int, state: str) -> str | None:
    if state not in "SD":
        return None
    by_call = _waits_in_call(pid)
    if by_call is not None:
        return by_call
    channel = "".join(lines(f"/proc/{pid}/wchan"))
    by_channel = next((word for part, word in _WAIT_CHANNELS.items() if part in channel), None)
    return by_channel or ("disk" if state == "D" else None)


def _waits_in_call(pid: int) -> str | None:
    call = " ".join(lines(f"/proc/{pid}/syscall")).split()  # number and arguments; or "running"
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
