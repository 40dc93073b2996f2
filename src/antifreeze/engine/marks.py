"""Where each worker was after the last batch of its that the user has, so that a pass can go on from there another time.

Workers say so with some of their answers: what has changed since they last did. What they say stays as it came, bytes,
until somebody wants to know: workers are ahead of the user, so that most of it is never looked at.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from antifreeze.engine.numbers import SeatNo, TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.worker.parts import Parts, merged

Said = bytes | Parts
"""A place, whole or in parts."""


@dataclass(slots=True)
class Stand:
    """How far one worker has got, as the user sees it."""

    done: int = 0
    """So many of its tickets of this pass are in the user's hands."""
    marked: int = 0
    """After so many of them it has said where it is."""
    place: Said | None = None
    """What it said; None: it has not said anything, and is as it was born."""
    has_ended: bool = False
    """Whether the user has all of its part of an iterable dataset."""


class _Before(NamedTuple):
    """How it was before a batch was delivered."""

    ticket: Ticket
    done: int
    marked: int
    place: Said | None
    turn: int
    planned: int
    last_index: Any


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A pass that is to go on where it was another time."""

    stands: Sequence[Stand]
    """By worker."""
    planned: int
    """So many batches are planned; all of them are in the user's hands, but for those that are open."""
    turn: int = 0
    """Whose turn it is."""
    asked: Sequence[int] = ()
    """How many items of its stream each worker has been asked for."""
    again: Sequence[tuple[int, WorkerNo, Any]] = ()
    """Batch, worker and index of tickets to do again, after the place where their worker begins, and to throw away."""
    open: Sequence[tuple[int, WorkerNo, Any]] = ()
    """Those that the user does not have yet, though he has later ones."""
    last_index: Any = None
    """Of the last batch that was planned."""
    is_over: bool = False
    """Whether it is not to go on, but to be followed by the next one."""


@dataclass(slots=True)
class Marks:
    """Knows where workers were."""

    workers: int
    every: int | None
    """Workers say where they are about so often, counted in batches; 0: before the first alone; None: nobody cares."""
    is_telling: bool
    """Whether they have something to say before their first ticket: what a dataset or a stream says of itself."""
    stands: list[Stand] = field(init=False)
    planned: int = field(init=False, default=0)
    turn: int = field(init=False, default=0)
    last_index: Any = field(init=False, default=None)
    unknown: set[WorkerNo] = field(init=False, default_factory=set)
    """Those that have been asked where they are, and have not said so yet."""
    open: dict[int, Ticket] = field(init=False, default_factory=dict)
    """Tickets that are planned and not in the user's hands, by their batch."""
    in_hand: _Before | None = field(init=False, default=None)
    """What the batch that was delivered last has changed."""
    _first: TicketNo = field(init=False, default=TicketNo(0))
    _asked: TicketNo = field(init=False, default=TicketNo(-1))
    _said: dict[SeatNo, Said] = field(init=False, default_factory=dict)
    """What each process said last."""
    _arrived: dict[TicketNo, Said] = field(init=False, default_factory=dict)
    """What came with answers that the user does not have yet."""

    def __post_init__(self) -> None:
        self.stands = [Stand() for _ in range(self.workers)]

    def begin(self, first: TicketNo, unfinished: Unfinished | None) -> None:
        """A pass begins with this ticket, or goes on with it."""
        self._first = first
        self.in_hand = None
        self._arrived.clear()
        self.open.clear()
        self.unknown.clear()
        if unfinished is None or unfinished.is_over:
            self.stands = [Stand() for _ in range(self.workers)]
            self.planned, self.turn, self.last_index = 0, 0, None
        else:
            self.stands = list(unfinished.stands)
            self.planned, self.turn, self.last_index = unfinished.planned, unfinished.turn, unfinished.last_index

    def is_due(self, ticket: Ticket) -> bool:
        """Whether the worker is to say where it is after this ticket: the last one of each worker before a multiple."""
        every = self.every or 0
        return every > 0 and ticket.batch % every + self.workers >= every

    def asks_first(self, *, is_first_pass: bool) -> bool:
        """Whether workers are to say where they are before a pass; in their first one, most are as they were born."""
        return self.every is not None and (self.is_telling or not is_first_pass)

    def ask(self, before: TicketNo) -> None:
        """All workers are asked where they are before this ticket."""
        self._asked = before
        self.unknown = {WorkerNo(number) for number in range(self.workers)}

    def is_behind(self) -> bool:
        """Whether some worker has done more for the user since it last said where it is."""
        return self.every is not None and any(stand.marked < stand.done for stand in self.stands)

    def note_told(self, worker: WorkerNo, seat: SeatNo, ticket: TicketNo, place: Said | None) -> None:
        """A worker has said where it is before this ticket, and after all that came before it."""
        if place:
            self._hear(seat, place)
        if ticket == self._asked and worker in self.unknown:
            self.unknown.discard(worker)
            stand = self.stands[worker]
            stand.place, stand.marked = self._said.get(seat), stand.done

    def _hear(self, seat: SeatNo, place: Said) -> None:
        self._said[seat] = place if isinstance(place, bytes) else merged(self._said.get(seat), place)

    def note_answer(self, seat: SeatNo, ticket: TicketNo, place: Said) -> None:
        """A worker has said where it is after this ticket."""
        if place:
            self._hear(seat, place)
        if ticket >= self._first:
            self._arrived[ticket] = self._said[seat]

    def note_delivered(self, ticket: Ticket) -> None:
        """The user gets this batch, or what was raised in its place."""
        stand = self.stands[ticket.worker]
        self.in_hand = _Before(ticket, stand.done, stand.marked, stand.place, self.turn, self.planned, self.last_index)
        stand.done += 1
        self._move(stand, ticket)
        self.turn = (ticket.worker + 1) % self.workers
        self.open.pop(ticket.batch, None)
        if ticket.batch >= self.planned:
            self.planned, self.last_index = ticket.batch + 1, ticket.index

    def without_the_one_in_hand(self) -> Marks:
        """As it was before the last batch was delivered: it has not reached the user."""
        before = self.in_hand
        if before is None:
            return self
        then, worker = copy.copy(self), before.ticket.worker
        then.stands = list(self.stands)
        then.stands[worker] = Stand(before.done, before.marked, before.place, self.stands[worker].has_ended)
        then.planned, then.turn, then.last_index = before.planned, before.turn, before.last_index
        then.open = {**self.open, before.ticket.batch: before.ticket}
        return then

    def note_end(self, ticket: Ticket) -> None:
        """The user has all of this worker's part of an iterable dataset."""
        stand = self.stands[ticket.worker]
        stand.has_ended = True
        self._move(stand, ticket)

    def _move(self, stand: Stand, ticket: Ticket) -> None:
        place = self._arrived.pop(ticket.number, None)
        if place is not None:
            stand.place, stand.marked = place, stand.done
