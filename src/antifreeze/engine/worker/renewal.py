"""A worker that has copied too much of its stem's memory leaves, so that a fresh one goes on in its place (decision 13).

So does one whose own memory grows on and on, when memory is short.

It leaves between two tickets, right after a snapshot. Only a worker that leaves nothing behind may do so: one that has
threads or processes of its own, or whose dataset, or a global of the user's modules, has changed since its birth, stays.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from antifreeze import machine
from antifreeze.engine import staleness
from antifreeze.engine.supervise.growth import Growth, is_short
from antifreeze.engine.worker import kept
from antifreeze.engine.worker.recipe import Recipe

# After so many times as many samples as lie between two elements that are looked at, a worker that changes what it visits
# has changed one of these: with random samples, but for a chance of one in 160,000.
VISITS = 12


class Renewed(BaseException):
    """Raised between two tickets: the worker is to be renewed. (No `Exception`: those are the user's.)"""

    def __init__(self, copied_bytes: int, grown_bytes: int = 0) -> None:
        """`grown_bytes`: of its own memory, if that is the reason; else 0."""
        super().__init__(copied_bytes, grown_bytes)
        self.copied_bytes = copied_bytes
        self.grown_bytes = grown_bytes


@dataclass(frozen=True, slots=True)
class Heritage:
    """What a worker has from its stem."""

    stem_pid: int
    forked_at: float
    """On the monotonic clock, which they share."""
    mappings: Sequence[machine.Mapping]
    """Memory that was the stem's when it was ready to fork."""


class Renewal:
    """Knows when a worker is to leave."""

    def __init__(self, recipe: Recipe, heritage: Heritage) -> None:
        self._recipe = recipe
        self._heritage = heritage
        self._growth: Growth | None = None
        self._traits: tuple[kept.Traits, dict[str, Any]] = [], {}
        self._enough_samples = 0.0
        """Before it has fetched so many, what it keeps of them may have gone unseen."""
        self._enough_bytes = 0.0
        """So much must have been faulted in before anything dearer is done."""

    def raise_if_due(self, *, samples: int) -> None:
        """To be called between tickets, from the first one on, when a snapshot has just been kept.

        `samples`: how many it has fetched.
        """
        if machine.faulted_bytes() < self._enough_bytes:
            return
        try:
            self._look(samples)
        except Exception:  # whatever an object of the user's does when it is looked at: then the worker stays as it is
            self._enough_bytes = math.inf

    def _look(self, samples: int) -> None:
        now = time.monotonic()
        if self._growth is None:
            waited_s = machine.waited_for_processor_s()  # a busy machine makes no birth dearer
            self._growth = Growth(now=now, birth_s=max(0.0, now - self._heritage.forked_at - waited_s))
            self._traits = self._describe()
        elif now < self._growth.next_look:
            return
        else:
            began_s = time.thread_time()  # not by the clock: on a busy machine, all that follows takes longer, too
            memory = None if self._must_stay() else machine.memory_since(self._heritage.mappings)
            if memory is None:
                self._enough_bytes = math.inf
                return
            is_due = self._growth.note(memory, now=now, took_s=time.thread_time() - began_s)
            shows_what_it_keeps = samples >= self._enough_samples
            if is_due and shows_what_it_keeps:
                raise Renewed(self._growth.copied_bytes)
            if (
                shows_what_it_keeps
                and self._growth.may_leak
                and is_short(available_bytes=machine.available_memory(), total_bytes=machine.total_memory())
            ):
                raise Renewed(self._growth.copied_bytes, self._growth.grown_bytes)
        self._enough_bytes = machine.faulted_bytes() + self._growth.bytes_between_looks

    def _must_stay(self) -> bool:
        return (
            os.getppid() != self._heritage.stem_pid  # it is gone, and the next would have the dataset as it is now
            or threading.active_count() > 1  # a process that ends waits for its threads and its children
            or bool(multiprocessing.active_children())
            or self._traits != self._describe()
        )

    def _describe(self) -> tuple[kept.Traits, dict[str, Any]]:
        # What workers keep outside the dataset (a counter, a level of difficulty) would be lost with them as well.
        description = kept.describe(self._recipe)
        self._enough_samples = VISITS * description.distance
        return description.traits, staleness.describe_modules()
