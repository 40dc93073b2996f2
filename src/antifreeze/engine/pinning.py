"""Batches into page-locked memory, by one thread beside the trainer's: torch's `pin_memory=True`, torch's own function.

The only thread of ours. It is given batches as soon as they have come, and works while the user's step does. It ends when
it is told to, when its `Pinner` is forgotten, and when the program ends: never later, for a thread that is in the driver
when the interpreter goes can take the program down with it.
"""

from __future__ import annotations

import contextlib
import math
import queue
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from antifreeze.engine.supervise.patience import Patience
from antifreeze.engine.supervise.watchdog import Seen
from antifreeze.observe.say import say_counted
from antifreeze.torch_side.loaders import pin_memory
from antifreeze.torch_side.workers import ExceptionWrapper, name_thread

SLICE_S = 1.0
# A batch is copied in milliseconds: one that takes longer than this is reported.
SLOW_S = 10.0
# A batch is copied in milliseconds; a thread that takes longer than this to leave is stuck in a driver, and is left behind.
STOP_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class Device:
    """The accelerator that batches are pinned for."""

    kind: str | None
    """None: an older torch, which takes CUDA unless it is told otherwise."""
    index: int

    def enter(self) -> None:
        """Make it the one that this thread works for."""
        torch.accelerator.set_device_index(self.index)


class Pinned:
    """A batch that is being pinned."""

    __slots__ = ("_batch", "_error", "_is_done", "_under_way")

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._error: ExceptionWrapper | None = None
        self._is_done = False
        self._under_way = threading.Lock()
        self._under_way.acquire()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is done by then."""
        if not self._is_done:
            self._under_way.acquire(timeout=timeout_s)  # only to sleep: an interrupt may cost us what this returns
        return self._is_done

    def take(self) -> Any:
        """The batch in its new place; raises what pinning it raised, in torch's words."""
        batch, self._batch = self._batch, None
        if self._error is not None:
            self._error.reraise()
        return batch

    def drop(self) -> None:
        """Nobody wants it any more; if it has not been begun, there is nothing left to do."""
        self._batch = None

    def pin(self, device: Device) -> None:
        """Called by the thread."""
        try:
            self._batch = pin_memory(self._batch, device.kind)
        except Exception:  # of a `pin_memory` method of the user's, or of the device
            self._batch = None
            self._error = ExceptionWrapper(where=f"in pin memory thread for device {device.index}")
        self._is_done = True
        self._under_way.release()


class Limits(NamedTuple):
    """How long a batch may take to be pinned."""

    timeout_s: float
    """torch's own `timeout=`; 0: none."""
    idle_s: float
    """How long the thread may do nothing at it."""


Orders = queue.SimpleQueue[Pinned | None]
"""Batches to pin; None: that was all."""


class Pinner:
    """The thread and its queue."""

    def __init__(self, device: Device) -> None:
        self._orders: Orders = queue.SimpleQueue()
        self.thread = threading.Thread(target=_run, args=(self._orders, device), name="antifreeze pins", daemon=True)
        self.thread.start()
        self.close = weakref.finalize(self, _end, self.thread, self._orders)
        """End the thread; what it has not begun is dropped."""

    def start(self, batch: Any) -> Pinned:
        """Have this batch pinned."""
        pinned = Pinned(batch)
        self._orders.put(pinned)
        return pinned

    def await_pinned(self, pinned: Pinned, *, batch: int, limits: Limits) -> None:
        """Wait for the pinning of this batch, which has this number; raises if the thread is stuck, or gone.

        A thread that is slow is reported once.
        """
        patience, waited_s, is_reported = Patience(limits.idle_s), 0.0, False
        deadline = time.monotonic() + (limits.timeout_s or math.inf)
        while not pinned.wait(min(SLICE_S, max(0.0, deadline - time.monotonic()))):
            if not self.thread.is_alive():
                raise RuntimeError("Pin memory thread exited unexpectedly")
            waited_s += SLICE_S
            if time.monotonic() >= deadline:
                raise RuntimeError(f"DataLoader timed out after {limits.timeout_s:g} seconds: {self._where(batch)}")
            if patience.is_over(self._seen(), passed_s=SLICE_S):
                raise RuntimeError(
                    f"DataLoader is stuck: for {patience.idle_s:.0f} seconds nothing has happened; {self._where(batch)}. "
                    "It is the driver, or a pin_memory method of the batch; pin_memory=False does without"
                )
            if waited_s >= SLOW_S and not is_reported:
                is_reported = True
                say_counted("pinning", f"{self._where(batch)}, since {waited_s:.0f} s")

    def _seen(self) -> Seen | None:
        """What the thread has used of a processor."""
        if self.thread.ident is None:
            return None
        cpu_s = time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident))
        return Seen(cpu_s, io_bytes=0, is_traced=False, is_stopped=False, waits_in=None)

    def _where(self, batch: int) -> str:
        """What is being waited for, with the line that the thread is at."""
        text = f"batch {batch} has come, and is still on its way into page-locked memory (pin_memory=True)"
        frame = sys._current_frames().get(self.thread.ident or 0)
        if frame is None:
            return text
        return f"{text}, at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _run(orders: Orders, device: Device) -> None:
    torch.set_num_threads(1)  # of this thread alone: its copies must not take all processors
    name_thread("pt_data_pin")
    device.enter()
    while (pinned := orders.get()) is not None:
        pinned.pin(device)


def _end(thread: threading.Thread, orders: Orders) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            orders.get_nowait()
    orders.put(None)
    if thread is not threading.current_thread():  # the collector, which may have brought us here, runs in any thread
        thread.join(STOP_DEADLINE_S)
