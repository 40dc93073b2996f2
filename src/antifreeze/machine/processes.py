"""What the kernel knows about any process: its state, what it has used, what it waits for."""

from __future__ import annotations

import os
import platform
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from antifreeze.machine.connections import bytes_over_connections
from antifreeze.machine.reading import lines, listing

# The system calls that a stuck worker sits in, by number; of "file", the descriptor tells what is waited for.
_SYSCALLS = {
    "x86_64": {
        "lock": (202, 449, 455),
        "file lock": (72, 73),
        "socket": (42, 43, 44, 45, 46, 47, 288, 299, 307),
        "poll": (7, 23, 232, 270, 271, 281, 441),
        "sleep": (35, 230),
        "child": (61, 247),
        "disk": (2, 74, 75, 76, 77, 257),
        "file": (0, 1, 17, 18, 19, 20, 295, 296),
    },
    "aarch64": {
        "lock": (98, 449, 455),
        "file lock": (25, 32),
        "socket": (202, 203, 206, 207, 211, 212, 242, 243, 269),
        "poll": (22, 72, 73, 441),
        "sleep": (101, 115),
        "child": (95, 260),
        "disk": (45, 46, 56, 82, 83),
        "file": (63, 64, 65, 66, 67, 68, 69, 70),
    },
}
_SELECTS = {"x86_64": (23, 270), "aarch64": (72,)}
_OPENS = (2, 56, 257)  # x86_64 has two of them
# Where the kernel does not say which system call it is: parts of the names of the functions that it waits in.
_WAIT_CHANNELS = {
    "futex": "lock",
    "pipe": "pipe",
    "partner": "pipe",
    "flock": "file lock",
    "setlk": "file lock",
    "unix": "socket",
    "sk_": "socket",
    "skb_": "socket",
    "inet": "socket",
    "tcp": "socket",
    "poll": "poll",
    "select": "poll",
    "nanosleep": "sleep",
    "do_wait": "child",
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
    """Bytes read and written so far: from files and pipes, pages of mapped files, connections; what we may not see is 0."""
    tracer_pid: int
    """Who debugs it; 0: nobody."""
    waits_in: str | None
    """What its main thread waits for: lock, file lock, socket, pipe, terminal (somebody to type), poll, sleep, child (its
    end) or disk; None: something else, or nothing."""


class Stat(NamedTuple):
    """What everybody may see of a process."""

    state: str
    parent: int
    group: int
    major_faults: int
    """Pages that had to be read from a disk: of mapped files, or from the swap."""
    cpu_s: float
    reaped_cpu_s: float
    """Of its children that have ended."""
    started_s: float
    """Since the machine was booted."""
    processor: int
    """That it last ran on."""


def process_facts(pid: int) -> ProcessFacts | None:
    """What there is to know about a process; None if there is none (or no `/proc`)."""
    seen = facts_in_stat(pid)
    if seen is None:
        return None
    tracer = next((line for line in lines(f"/proc/{pid}/status") if line.startswith("TracerPid:")), "TracerPid: 0")
    return ProcessFacts(
        state=seen.state,
        cpu_s=seen.cpu_s,
        io_bytes=io_bytes(pid, seen),
        tracer_pid=int(tracer.split()[1]),
        waits_in=_waits_in(pid, seen.state),
    )


def numbers_in_proc() -> list[int]:
    """The numbers of all processes that we can see."""
    return [int(name) for name in listing("/proc") if name.isdigit()]


def facts_in_stat(pid: int) -> Stat | None:
    """None: there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # a name can hold spaces and brackets
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    user, system, reaped_user, reaped_system = (int(field) * tick_s for field in fields[11:15])
    return Stat(
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        major_faults=int(fields[9]),
        cpu_s=user + system,
        reaped_cpu_s=reaped_user + reaped_system,
        started_s=int(fields[19]) * tick_s,
        processor=int(fields[36]),
    )


def exit_code_of(pid: int) -> int | None:
    """Of a process that has ended and was not waited for yet, as multiprocessing gives it; None: we may not know."""
    seen = facts_in_stat(pid)
    if seen is None or seen.state != "Z":
        return None
    fields = "".join(lines(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return os.waitstatus_to_exitcode(int(fields[49])) if len(fields) > 49 else None


def io_bytes(pid: int, seen: Stat) -> int:
    """Bytes that a process has read and written so far, as far as we may see them."""
    by_calls = sum(int(line.split()[1]) for line in lines(f"/proc/{pid}/io") if line.startswith(("rchar:", "wchar:")))
    return by_calls + seen.major_faults * os.sysconf("SC_PAGE_SIZE") + bytes_over_connections(pid)


def _waits_in(pid: int, state: str) -> str | None:
    if state not in "SD":
        return None
    by_call = _waits_in_call(pid, state)
    if by_call is not None:
        return by_call
    channel = "".join(lines(f"/proc/{pid}/wchan"))
    by_channel = next((word for part, word in _WAIT_CHANNELS.items() if part in channel), None)
    return by_channel or ("disk" if state == "D" else None)


def _waits_in_call(pid: int, state: str) -> str | None:
    call = call_of(pid)
    if call is None:
        return None
    number, arguments = call
    words = _SYSCALLS.get(platform.machine(), {})
    word = next((word for word, numbers in words.items() if number in numbers), None)
    if word == "disk" and state == "S" and number in _OPENS:
        return "pipe"  # only the opening of a FIFO can be interrupted: it waits for somebody at the other end
    if (
        number in _SELECTS.get(platform.machine(), ()) and arguments[0] == 1
    ):  # of standard input alone, as readline does
        return "terminal" if _kind_of_file(pid, 0) == "terminal" else word
    return _kind_of_file(pid, arguments[0]) if word == "file" else word


def call_of(pid: int) -> tuple[int, list[int]] | None:
    """The number and the arguments of the system call that the main thread is in; None: it runs, or we may not know."""
    call = " ".join(lines(f"/proc/{pid}/syscall")).split()
    if len(call) < 7 or not call[0].isdigit():  # "running", or "-1" with two addresses
        return None
    return int(call[0]), [int(argument, 16) for argument in call[1:7]]


def _kind_of_file(pid: int, fd: int) -> str | None:
    path = f"/proc/{pid}/fd/{fd}"
    try:
        target, mode = os.readlink(path), os.stat(path).st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return "socket"
    if stat.S_ISFIFO(mode):
        return "pipe"
    if target.startswith(("/dev/pts/", "/dev/tty")):
        return "terminal"
    return "disk" if target.startswith("/") and not target.startswith("/dev/") else None
