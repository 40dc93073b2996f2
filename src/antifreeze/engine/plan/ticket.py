"""Sampler → tickets: batch *k* of an epoch goes to worker *k mod n*, as torch does it.

The sampler is advanced only when the caller asks for one ticket, so that look-ahead is the caller's decision alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from antifreeze.engine.numbers import TicketNo, WorkerNo


class Ticket(NamedTuple):
    """The order for one batch."""

    number: TicketNo
    batch: int
    """Position in its epoch, from 0: what the user calls the batch number."""
    worker: WorkerNo
    index: Any
    """What the sampler gave: a list of indices, or a single one when batching is off."""


class Plan:
    """Makes the tickets of one epoch after the other."""

    def __init__(self, *, workers: int) -> None:
        self._workers = workers
        self._next_number = 0
        self._batch = 0
        self._next_index: Callable[[], Any] | None = None

    def begin(self, next_index: Callable[[], Any]) -> None:
        """Start an epoch; `next_index` gives what the sampler gives and raises StopIteration at its end."""
        self._next_index = next_index
        self._batch = 0

    def draw(self) -> Ticket | None:
        """Advance the sampler by one; None when it is exhausted. An error of the sampler passes through."""
        if self._next_index is None:
            return None
        try:
            index = self._next_index()
        except StopIteration:
            return None
        ticket = Ticket(TicketNo(self._next_number), self._batch, WorkerNo(self._batch % self._workers), index)
        self._next_number += 1
        self._batch += 1
        return ticket
