"""Datasets whose workers get stuck, die, or return what cannot be sent."""

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from leftovers import Incarnation, incarnation, is_running, wait_until


class Numbers(Dataset[Any]):
    def __init__(self, length: int = 8) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return index


class Pictures(Numbers):
    """Large enough to be lent, and a small label beside it. 192 KiB a sample."""

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 128, 128), float(index)), index


def sleep() -> None:
    time.sleep(1000)


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


def hold_the_gil() -> None:
    """C code that sleeps without giving Python back: no signal handler of Python can run."""
    ctypes.PyDLL(None).sleep(1000)


def be_stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_for_a_child() -> None:
    """A process of the worker's own; nobody must find it alive after the worker."""
    subprocess.run(["sleep", "1000"], check=False)


def read_for_ever() -> None:
    ours, theirs = os.pipe()
    os.read(ours, 1)
    os.close(theirs)


STUCK = [sleep, ignore_sigterm, hold_the_gil, be_stopped, wait_for_a_child, read_for_ever]


def every_kind() -> None:
    """Each worker gets stuck in a way of its own."""
    worker = get_worker_info()
    assert worker is not None
    STUCK[worker.id % len(STUCK)]()


class Stuck(Numbers):
    """Samples from `first` on never come back. Each worker writes its pid to a file before it gets stuck."""

    def __init__(self, folder: Path, kind: Any, *, first: int = 0, length: int = 8) -> None:
        super().__init__(length)
        self.folder = folder
        self.kind = kind
        self.first = first

    def __getitem__(self, index: int) -> Any:
        if index >= self.first:
            (self.folder / f"stuck-{os.getpid()}").touch()
            self.kind()
        return index

    def wait_stuck(self, workers: int, *, within_s: float = 60.0) -> list[Incarnation]:
        """In the trainer: wait until that many workers are stuck; gives them and their children."""
        names = lambda: [int(path.name.partition("-")[2]) for path in self.folder.glob("stuck-*")]  # noqa: E731
        assert wait_until(lambda: len(names()) >= workers, within_s), "workers did not get stuck"
        if self.kind in (wait_for_a_child, every_kind):
            assert wait_until(lambda: bool(children_of(names())), within_s)
        found = (incarnation(pid) for pid in [*names(), *children_of(names())])
        return [who for who in found if who is not None]


def children_of(pids: list[int]) -> list[int]:
    lists = (Path(f"/proc/{pid}/task/{pid}/children") for pid in pids)
    return [int(child) for path in lists if path.exists() for child in path.read_text().split()]


def assert_ended(processes: list[Incarnation], *, within_s: float = 30.0) -> None:
    gone = wait_until(lambda: not any(is_running(who) for who in processes), within_s)
    assert gone, f"still running: {[who for who in processes if is_running(who)]}"


def exit_0() -> None:
    os._exit(0)


def exit_3() -> None:
    os._exit(3)


def sys_exit_4() -> None:
    sys.exit(4)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    faulthandler.disable()  # pytest's, which would print the stack of every frame of the test
    os.kill(os.getpid(), signal.SIGSEGV)


def abort() -> None:
    faulthandler.disable()
    os.abort()


class Dying(Numbers):
    """The worker that gets sample `bad` writes down its pid and the time, and dies."""

    def __init__(self, length: int, *, bad: int, note: Path, death: Any) -> None:
        super().__init__(length)
        self.bad = bad
        self.note = note
        self.death = death

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            self.note.write_text(f"{os.getpid()} {time.monotonic()}")
            self.death()
        return index


class Unsendable(Numbers):
    """Sample 3 holds something that no pickler can take."""

    def __init__(self, kind: str) -> None:
        super().__init__(8)
        self.kind = kind

    def __getitem__(self, index: int) -> Any:
        if index != 3:
            return {"index": index, "parts": [1, {"reader": None}]}
        thing = {"lock": threading.Lock(), "generator": (n for n in range(3)), "frame": sys._getframe()}[self.kind]
        return {"index": index, "parts": [1, {"reader": thing}]}


class Loud(Numbers):
    """Fails with a megabyte of text."""

    def __getitem__(self, index: int) -> Any:
        raise ValueError("x" * 1_000_000 + f" at {index}")


def make_error() -> type[Exception]:
    class DecodeError(Exception):
        """Of a class that cannot be found by name."""

    return DecodeError


class LocalError(Numbers):
    def __getitem__(self, index: int) -> Any:
        raise make_error()(f"cannot decode sample {index}")


def as_is(samples: list[Any]) -> Any:
    return samples


def count_and_sum(samples: list[int]) -> Any:
    return len(samples), sum(samples)


def arrays(samples: list[Any]) -> Any:
    return {"large": np.full((100, 300), samples[0], dtype=np.float64), "small": np.array(samples)}


class Watching(Numbers):
    """Its length changes as the trainer likes; samples tell the version they came from."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.version = 0

    def __getitem__(self, index: int) -> Any:
        return self.version, index


class Squares:
    """Indices for one batch, many of them."""

    def __init__(self, batches: int, size: int) -> None:
        self.batches = batches
        self.size = size

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(self.batches):
            yield list(range(number, number + self.size))
