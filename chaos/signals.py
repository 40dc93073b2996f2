"""A program whose signal handler runs all the time, in the middle of whatever the loader does in the trainer."""

from __future__ import annotations

import ctypes
import gc
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNAL = signal.SIGUSR2
EVERY_S = 0.003

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def frequent_signals() -> Iterator[None]:
    """Have the kernel send a signal every few milliseconds; the handler makes garbage and has it collected."""
    previous = signal.signal(SIGNAL, _make_garbage)
    timer = start_timer(SIGNAL, first_s=EVERY_S, every_s=EVERY_S)
    try:
        yield
    finally:
        _libc.timer_delete(timer)
        signal.signal(SIGNAL, previous)


def start_timer(number: int, *, first_s: float, every_s: float = 0.0) -> ctypes.c_void_p:
    """Have the kernel send this process a signal, whatever it is doing then. Not inherited by children."""
    timer = ctypes.c_void_p()
    event = struct.pack("qii48x", 0, number, 0)  # struct sigevent: value, signal, SIGEV_SIGNAL
    if _libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "timer_create")
    spec = struct.pack("llll", *_timespec(every_s), *_timespec(max(first_s, 1e-9)))  # struct itimerspec
    if _libc.timer_settime(timer, 0, spec, None):
        raise OSError(ctypes.get_errno(), "timer_settime")
    return timer


def _timespec(seconds: float) -> tuple[int, int]:
    return divmod(max(0, int(seconds * 1e9)), 1_000_000_000)


def _make_garbage(_number: int, _frame: Any) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    del cycle
    gc.collect(0)
