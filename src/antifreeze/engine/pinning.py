"""Batches into page-locked memory, by one thread beside the trainer's: torch's `pin_memory=True`, torch's own function.

The only thread of ours. It is given batches as soon as they have come, and works while the user's step does.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils.pin_memory import pin_memory

SLICE_S = 1.0
# A batch is copied in milliseconds; a thread that takes longer than this to leave is stuck in a driver, and is left behind.
STOP_DEADLINE_S = 5.0


class Pinned:
    """A batch that is being pinned."""

    __slots__ = ("_batch", "_error", "_is_done")

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._error: ExceptionWrapper | None = None
        self._is_done = threading.Event()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is done by then."""
        return self._is_done.wait(timeout_s)

    def take(self) -> Any:
        """The batch in its new place; raises what pinning it raised, in torch's words."""
        batch, self._batch = self._batch, None
        if self._error is not None:
            self._error.reraise()
        return batch

    def pin(self, device_index: int, device: str) -> None:
        """Called by the thread."""
        try:
            self._batch = pin_memory(self._batch, device)
        except Exception:  # of a `pin_memory` method of the user's, or of the device
            self._batch = None
            self._error = ExceptionWrapper(where=f"in pin memory thread for device {device_index}")
        self._is_done.set()


class Pinner:
    """The thread and its queue."""

    def __init__(self, device: str) -> None:
        self._waiting: queue.SimpleQueue[Pinned | None] = queue.SimpleQueue()
        arguments = (weakref.ref(self), self._waiting, torch.accelerator.current_device_index(), device)
        self.thread = threading.Thread(target=_run, args=arguments, name="antifreeze pins", daemon=True)
        self.thread.start()

    def start(self, batch: Any) -> Pinned:
        """Have this batch pinned."""
        pinned = Pinned(batch)
        self._waiting.put(pinned)
        return pinned

    def wait_for(self, pinned: Pinned) -> None:
        """Until this batch is pinned, or there is nobody left to do it."""
        while not pinned.wait(SLICE_S):
            if not self.thread.is_alive():
                raise RuntimeError("Pin memory thread exited unexpectedly")

    def close(self) -> None:
        """End the thread; what it has not begun is dropped."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        self._waiting.put(None)
        self.thread.join(STOP_DEADLINE_S)


def _run(owner: weakref.ref[Pinner], waiting: queue.SimpleQueue[Pinned | None], device_index: int, device: str) -> None:
    torch.set_num_threads(1)  # of this thread alone: its copies must not take all processors
    torch.multiprocessing._set_thread_name("pt_data_pin")
    torch.accelerator.set_device_index(device_index)
    while owner() is not None:
        with contextlib.suppress(queue.Empty):
            pinned = waiting.get(timeout=SLICE_S)
            if pinned is None:
                return
            pinned.pin(device_index, device)
            del pinned  # a batch is not to be held until the next one comes
