"""Sampler → tickets, each for the worker that torch would give it to, or with a seed of its own and for anybody.

In order: one worker after the other, in turn. Out of order (torch's `in_order=False`): in turn as well, but a worker that
has its share under way already is passed over. Workers whose part of an iterable dataset has ended get nothing more.
Tickets with seeds belong to whoever has time for them when they are sent.

The sampler is advanced only when the caller asks for one ticket, so that look-ahead is the caller's decision alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any, NamedTuple

from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.seeds import ticket_seed

try:
    import numpy as np
except ImportError:  # torch works without it
    _COPIED: tuple[type, ...] = (dict, set, bytearray)
else:
    _COPIED = (dict, set, bytearray, np.ndarray)

NOBODY = WorkerNo(-1)
"""The worker of a ticket that has not been given to anybody."""


class Ticket(NamedTuple):
    """The order for one batch."""

    number: TicketNo
    batch: int
    """Position in its epoch, from 0: what the user calls the batch number."""
    worker: WorkerNo
    index: Any
    """What the sampler gave, as it was then: a list of indices, or a single one when batching is off. Of an iterable
    dataset: which items of this worker's own stream, counted from 0 in each epoch, as a range or as a single number."""
    seed: int | None = None
    """What its samples' random numbers follow from; None: they follow from those before them in the same worker."""
    is_batched: bool = True
    """Whether the index is one of several samples; else it is the key of one thing, of whatever kind it is."""

    @property
    def samples(self) -> Sequence[Any]:
        """The index of each of its samples, as far as they can be told apart; else its index, as if of a single one."""
        return self.index if self.is_batched and isinstance(self.index, list | tuple | range) else (self.index,)


class Plan:
    """Makes the tickets of one epoch after the other."""

    def __init__(
        self, *, workers: int, share_out: int | None = None, is_stream: bool = False, is_batched: bool = True
    ) -> None:
        """`share_out`: so many tickets are shared out among the workers, out of order; None: in order, all in turn."""
        self._is_batched = is_batched
        self._workers = workers
        self._share_out = share_out
        self._is_stream = is_stream
        self._next_number = 0
        self._next_index: Callable[[], Any] | None = None
        self._seed: int | None = None
        self._start_over()

    def _start_over(self) -> None:
        self._batch = 0
        self._turn = 0
        self._has_ended = [False] * self._workers
        self._under_way = [0] * self._workers
        self._last_done: TicketNo | None = None
        self._has_run_out = False
        self._first_number = self._next_number
        self._passed_over = 0
        self._asked = [0] * self._workers
        """How many items of its stream each worker has been asked for."""

    @property
    def next_number(self) -> TicketNo:
        """Of the ticket that will be drawn next."""
        return TicketNo(self._next_number)

    @property
    def is_exhausted(self) -> bool:
        """Whether the sampler has been asked for all of this epoch, or all workers' streams have ended."""
        return self._next_index is None or self._has_run_out or (self._is_stream and all(self._has_ended))

    @property
    def planned(self) -> int:
        """How many tickets of this epoch have been drawn, without those whose batches were delivered another time."""
        return self._next_number - self._first_number - self._passed_over

    def begin(self, next_index: Callable[[], Any], *, seed: int | None = None) -> None:
        """Start an epoch; `next_index` gives what the sampler gives and raises StopIteration at its end.

        `seed`: tickets have seeds, which follow from this one.
        """
        self._next_index = next_index
        self._seed = seed
        self._start_over()

    def take_up(self, *, batch: int, turn: int, ended: Sequence[bool], asked: Sequence[int]) -> None:
        """Go on in the middle of an epoch, with this batch, and whoever's turn it is."""
        self._batch, self._turn = batch, turn
        self._has_ended, self._asked = list(ended), list(asked)

    def plan_again(self, worker: WorkerNo, *, batch: int, index: Any, is_open: bool) -> Ticket:
        """A ticket that was planned for this worker another time; an open one is still to be delivered."""
        seed = None if self._seed is None else ticket_seed(self._seed, batch)
        ticket = Ticket(TicketNo(self._next_number), batch, worker, index, seed, self._is_batched)
        self._next_number += 1
        self._under_way[worker] += is_open
        self._passed_over += not is_open
        return ticket

    def draw(self) -> Ticket | None:
        """Advance the sampler by one; None when it is exhausted, or all workers' streams are. Its errors pass through."""
        if self._next_index is None:
            return None
        try:
            index = self._next_index()
        except StopIteration:
            self._has_run_out = True
            return None
        if self._seed is not None:
            return self._count(NOBODY, index, ticket_seed(self._seed, self._batch))
        worker = self._next_worker()
        if worker is None:
            return None
        if self._is_stream:
            index = self._next_items(worker, index)
        self._under_way[worker] += 1
        return self._count(worker, index)

    def _count(self, worker: WorkerNo, index: Any, seed: int | None = None) -> Ticket:
        ticket = Ticket(TicketNo(self._next_number), self._batch, worker, as_it_is_now(index), seed, self._is_batched)
        self._next_number += 1
        self._batch += 1
        return ticket

    def done(self, ticket: Ticket) -> None:
        """The batch of this ticket is about to be delivered; it may be said more than once."""
        if ticket.number != self._last_done:
            self._last_done = ticket.number
            self._under_way[ticket.worker] -= 1

    def end(self, worker: WorkerNo) -> bool:
        """This worker's stream has ended; False if that was known."""
        was_known = self._has_ended[worker]
        self._has_ended[worker] = True
        return not was_known

    def _next_worker(self) -> WorkerNo | None:
        for _ in range(self._workers):
            worker = self._turn
            self._turn = (worker + 1) % self._workers
            if not self._has_ended[worker] and (self._share_out is None or self._has_room(worker)):
                return WorkerNo(worker)
        return None

    def _has_room(self, worker: int) -> bool:
        return self._under_way[worker] < self._share_out // self._has_ended.count(False)  # type: ignore[operator]

    def _next_items(self, worker: WorkerNo, index: Any) -> range | int:
        """torch's sampler for iterable datasets gives None, so many times: which items that means is for us to know."""
        start = self._asked[worker]
        if not isinstance(index, list | tuple):
            self._asked[worker] += 1
            return start
        self._asked[worker] += len(index)
        return range(start, self._asked[worker])


class _IsFixed(dict[type, bool]):
    """Whether objects of a type never change: numbers, text and None."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, Number | str | bytes | type(None))
        return self[kind]


_is_fixed = _IsFixed()


def as_it_is_now(index: Any) -> Any:
    """A copy of what a sampler gave, which may use the same list or array for the next one.

    Objects of other classes are left as they are.
    """
    kind = type(index)
    if kind is list or kind is tuple:
        if all(map(_is_fixed.__getitem__, set(map(type, index)))):
            return index[:]
        return kind(map(as_it_is_now, index))
    return index.copy() if kind in _COPIED else index
