"""Faults that strike inside a worker, at a point that its own code has reached.

A fault is armed by a file and claimed by renaming it, so that it strikes once, whoever comes there first and however often.
Points in user code are reached by the patient; those in our own by a hook on function calls.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from antifreeze.engine.wire.channel import Channel
from antifreeze.engine.worker.bench import Workbench
from chaos.faults import BY_NAME, FETCHING, IN_HOOK, Fault, Point
from chaos.limits import join_memory_group
from chaos.signals import start_timer

_SEND, _RECEIVE, _REST = Channel.send_all.__code__, Channel.receive.__code__, Workbench.rest.__code__
_near: Fault | None = None
"""The fault of the sample that this worker has fetched last of those that have one."""
_worker = -1


class Sabotage:
    """The faults of a trial that strike in workers."""

    def __init__(self, folder: str = "", by_index: dict[int, Fault] | None = None, at_birth: tuple[Fault, ...] = ()):
        self.folder = folder
        self.by_index = by_index or {}
        self.at_birth = at_birth
        self.trainer = os.getpid()
        """Who is spared: where no worker can be had any more, it makes the batches itself."""

    def arm(self, fault: Fault) -> None:
        """In the trainer: from now on, this fault can strike."""
        self._file("armed", fault).touch()

    def disarm(self, fault: Fault) -> None:
        """In the trainer: from now on, this fault cannot strike any more."""
        self._file("armed", fault).unlink(missing_ok=True)

    def fetch(self, index: int) -> None:
        """A worker fetches this sample."""
        global _near
        fault = self.by_index.get(index)
        if fault is None or not self._file("armed", fault).exists():
            return
        _near = fault
        if fault.point in FETCHING or fault.point is Point.ANY_MOMENT:
            self._strike(fault)

    def reach(self, point: Point) -> None:
        """A worker has come to this point of its step."""
        if _near is not None and _near.point is point:
            self._strike(_near)

    def be_born(self, worker: int) -> None:
        """A worker starts."""
        global _worker
        if os.getpid() == self.trainer:
            return
        _worker = worker
        for fault in self.at_birth:
            if fault.worker == worker:
                self._strike(fault)
        sys.setprofile(self._hook)

    def fired(self, fault: Fault) -> dict[str, Any] | None:
        """Who was struck by this fault and when; None: nobody."""
        try:
            return json.loads(self._file("fired", fault).read_text())  # type: ignore[no-any-return]
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def births(self) -> list[dict[str, Any]]:
        """All workers that have come to work, and when, the oldest first."""
        try:
            return [json.loads(line) for line in (Path(self.folder) / "births").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def _hook(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if code is _SEND and event == "call":
            self.reach(Point.SENDING)
        elif code is _SEND and event == "return":
            self.reach(Point.SENT)
        elif code is _RECEIVE and event == "call":
            self.reach(Point.IDLE)
        elif code is _REST and event == "return":
            self._note_birth()

    def _note_birth(self) -> None:
        if not any(fault.point in IN_HOOK for fault in self.by_index.values()):
            sys.setprofile(None)
        line = json.dumps({"worker": _worker, "pid": os.getpid(), "at": time.monotonic()}) + "\n"
        with open(Path(self.folder) / "births", "ab", buffering=0) as file:
            file.write(line.encode())

    def _strike(self, fault: Fault) -> None:
        if os.getpid() == self.trainer:
            return
        try:
            os.rename(self._file("armed", fault), self._file("fired", fault))
        except FileNotFoundError:  # not yet, or not any more
            return
        at = time.monotonic() + fault.delay_s
        self._file("fired", fault).write_text(json.dumps({"worker": _worker, "pid": os.getpid(), "at": at}))
        number = BY_NAME[fault.kind].signal
        if fault.point is Point.ANY_MOMENT and number is not None:
            start_timer(number, first_s=fault.delay_s)
        else:
            _DEEDS[fault.kind](self.folder)

    def _file(self, state: str, fault: Fault) -> Path:
        return Path(self.folder) / f"{state}-{fault.number}"


# --- the deeds


def _be_killed(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _read_nowhere(_: str) -> None:
    ctypes.string_at(0)


def _abort(_: str) -> None:
    os.abort()


def _read_beyond_the_end_of_a_file(folder: str) -> None:
    with open(Path(folder) / f"truncated-{os.getpid()}", "w+b") as file:
        file.truncate(mmap.PAGESIZE)
        mapping = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        mapping[0]


def _use_up_memory(folder: str) -> None:
    join_memory_group(folder)
    taken = []
    while True:  # until the kernel ends it
        taken.append(bytearray(b"x" * (4 << 20)))


def _exit_0(_: str) -> NoReturn:
    os._exit(0)


def _exit_1(_: str) -> NoReturn:
    os._exit(1)


def _sys_exit(_: str) -> NoReturn:
    raise SystemExit(4)


def _interrupt(_: str) -> NoReturn:
    raise KeyboardInterrupt


def _stop_iteration(_: str) -> NoReturn:
    raise StopIteration("there was no more")


def _sleep(_: str) -> None:
    while True:
        time.sleep(1e6)


def _wait_for_a_lock(_: str) -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _wait_for_a_socket(_: str) -> None:
    ours, _theirs = socket.socketpair()
    ours.recv(1)


def _wait_for_a_pipe(_: str) -> None:
    reading, _writing = os.pipe()
    os.read(reading, 1)


def _hold_the_gil(_: str) -> None:
    libc = ctypes.PyDLL(None)  # unlike CDLL, it keeps the interpreter's lock
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)  # for ever, and no signal ends it


def _be_stopped(_: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


_DEEDS: dict[str, Callable[[str], None]] = {
    "SIGKILL": _be_killed,
    "SIGSEGV": _read_nowhere,
    "SIGABRT": _abort,
    "SIGBUS": _read_beyond_the_end_of_a_file,
    "out of memory": _use_up_memory,
    "os._exit(0)": _exit_0,
    "os._exit(1)": _exit_1,
    "SystemExit": _sys_exit,
    "KeyboardInterrupt": _interrupt,
    "StopIteration": _stop_iteration,
    "sleeps for ever": _sleep,
    "waits for a lock": _wait_for_a_lock,
    "waits for a socket": _wait_for_a_socket,
    "waits for a pipe": _wait_for_a_pipe,
    "holds the GIL in C": _hold_the_gil,
    "SIGSTOP": _be_stopped,
}
