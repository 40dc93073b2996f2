"""Faults, and datasets and functions of users in which they strike: once, or every time.

Importable by name, and free of everything that cannot be pickled, so that they reach the workers of a clean stem, too.
"""

import ctypes
import mmap
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from torch.utils.data import default_collate

from antifreeze.engine.wire.channel import Channel
from processes.datasets import Numbers

LENGTH, BATCH, BAD = 24, 2, 13
BAD_BATCH = BAD // BATCH
"""Of worker 0, when there are two; by then a handful of samples are done."""


@dataclass(frozen=True)
class Fault:
    """Something bad that happens the first time, or every time, that anybody comes by."""

    act: Callable[[], object]
    note: Path
    """One byte for every time that it has happened."""
    every_time: bool

    def strike(self) -> None:
        with self.note.open("ab") as note:
            if note.tell() and not self.every_time:
                return
            note.write(b"!")
        self.act()

    @property
    def strikes(self) -> int:
        return self.note.stat().st_size if self.note.exists() else 0


# --- what ends a worker


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def bus_error() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        mapped.read(1)


def exit_0() -> None:
    os._exit(0)


def exit_1() -> None:
    os._exit(1)


def system_exit() -> None:
    sys.exit(4)


def keyboard_interrupt() -> None:
    raise KeyboardInterrupt


def stop_iteration() -> None:
    next(iter(()))


# --- what a worker gets stuck in


def sleep() -> None:
    time.sleep(1000)


def wait_on_a_socket() -> None:
    ours, theirs = socket.socketpair()
    ours.recv(1)
    theirs.close()


def wait_on_a_pipe() -> None:
    ours, theirs = os.pipe()
    os.read(ours, 1)
    os.close(theirs)


def wait_on_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hold_the_gil() -> None:
    """C code that sleeps without giving Python back: no handler of Python's can run."""
    while True:
        ctypes.PyDLL(None).sleep(30)  # which a signal ends early


def be_stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def loop_for_ever() -> None:
    while True:
        pass


INHERITED = threading.Lock()


class BehindTheInheritedLock(Numbers):
    """A lock that was held when the trainer forked is held forever in what was forked."""

    def __getitem__(self, index: int) -> int:
        with globals()["INHERITED"]:  # by name, it would be seen beforehand, and taken over the fork
            return index


# --- what is only slow


def sleep_a_little() -> None:
    time.sleep(0.8)


def compute_for_a_while() -> None:
    until = time.monotonic() + 2
    while time.monotonic() < until:
        pass


# --- what is raised


class TwoArguments(Exception):
    """Cannot be built from a text alone."""

    def __init__(self, path: str, line: int) -> None:
        super().__init__(f"{path}:{line} is broken")
        self.path = path


class WithMessage(Exception):
    """Has the attribute that makes torch build it with `message=`, and a constructor that takes no such thing."""

    message = "none"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.message = text


class Unpicklable(Exception):
    """Holds what cannot be sent."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class NotToBeRebuilt(Exception):
    """Can be pickled, but not back."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __reduce__(self) -> Any:
        return (_refuse, ())


def _refuse() -> Any:
    raise OSError("this cannot be rebuilt")


def value_error() -> None:
    raise ValueError("cannot decode it")


def local_class() -> None:
    class DecodeError(KeyError):
        """Nobody finds it by its name."""

    raise DecodeError("cannot decode it")


def other_arguments() -> None:
    raise TwoArguments("labels.csv", 7)


def message_attribute() -> None:
    raise WithMessage("cannot decode it")


def unpicklable() -> None:
    raise Unpicklable("cannot decode it")


def not_to_be_rebuilt() -> None:
    raise NotToBeRebuilt("cannot decode it")


def huge_message() -> None:
    raise ValueError("x" * 1_000_000 + " cannot decode it")


def group() -> None:
    raise ExceptionGroup("several", [ValueError("one of them"), KeyError("another")])


def chained() -> None:
    try:
        raise FileNotFoundError("labels.csv")
    except FileNotFoundError as why:
        raise ValueError("cannot decode it") from why


# --- where it strikes


class AtSample(Numbers):
    """In `__getitem__`."""

    def __init__(self, fault: Fault, *, bad: int = BAD) -> None:
        super().__init__(LENGTH)
        self.fault = fault
        self.bad = bad

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            self.fault.strike()
        return index


class InBulk(AtSample):
    """In `__getitems__`."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class OnAServer(Numbers):
    """From one sample on, each is to be had only while a server is there: a writer at the other end of a FIFO."""

    def __init__(self, server: Path) -> None:
        super().__init__(LENGTH)
        self.server = server

    def __getitem__(self, index: int) -> Any:
        if index >= BAD - 1:
            os.close(os.open(self.server, os.O_RDONLY))  # waits in the kernel, as in a file system that is away
        return index


class Swallowing(AtSample):
    """Gives None where something was raised, as people are told to do."""

    def __getitem__(self, index: int) -> Any:
        try:
            return super().__getitem__(index)
        except ValueError:
            return None


@dataclass(frozen=True)
class InCollate:
    fault: Fault

    def __call__(self, samples: list[Any]) -> Any:
        if BAD in samples:
            self.fault.strike()
        return default_collate(samples)


@dataclass(frozen=True)
class InInit:
    """In `worker_init_fn`, of worker 0."""

    fault: Fault

    def __call__(self, worker: int) -> None:
        if worker == 0:
            self.fault.strike()


@dataclass(frozen=True)
class InSampler:
    fault: Fault

    def __len__(self) -> int:
        return LENGTH

    def __iter__(self) -> Iterator[int]:
        for index in range(LENGTH):
            if index == BAD:
                self.fault.strike()
            yield index


class WhileWritten(AtSample):
    """While the batch is pickled into its slot."""

    def __getitem__(self, index: int) -> Any:
        return Written(index, self.fault if index == self.bad else None)


@dataclass(frozen=True)
class Written:
    index: int
    fault: Fault | None

    def __reduce__(self) -> Any:
        if self.fault is not None:
            self.fault.strike()
        return int, (self.index,)


@dataclass(frozen=True)
class AroundSending:
    """Right before, or right after, worker 0 sends the batch in question."""

    fault: Fault
    after: bool

    def __call__(self, worker: int) -> None:
        if worker == 0:
            Channel.send_all = self.wrapped(Channel.send_all)  # type: ignore[method-assign]

    def wrapped(self, send_all: Callable[..., None]) -> Callable[..., None]:
        def send(channel: Channel, message: Any, descriptors: Any = ()) -> None:
            is_it = getattr(message, "ticket", None) == BAD_BATCH
            if is_it and not self.after:
                self.fault.strike()
            send_all(channel, message, descriptors)
            if is_it and self.after:
                self.fault.strike()

        return send


class LoaderInside(Numbers):
    """Every sample is the sum of what a loader, with a worker of its own, gives."""

    def __init__(self) -> None:
        super().__init__(4)

    def __getitem__(self, index: int) -> Any:
        from antifreeze import DataLoader

        loader = DataLoader(Numbers(index + 2), num_workers=1, multiprocessing_context="fork")
        return sum(int(batch) for batch in loader)


class PoolInside(Numbers):
    """Every sample comes out of a pool of processes."""

    def __init__(self) -> None:
        super().__init__(4)

    def __getitem__(self, index: int) -> Any:
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
            return pool.submit(abs, -index).result(timeout=20)
