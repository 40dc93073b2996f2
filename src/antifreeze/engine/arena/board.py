"""A worker's board: what it is doing now, and what its generators were like a moment ago, in memory that survives it.

The worker writes, the trainer reads. What it is doing (its *pulse*) is three words, written before every sample. The
snapshots take turns in two places: while one is being written the other is whole, whenever the worker is killed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.segment import Segment
from antifreeze.engine.numbers import TicketNo

SIZE = 128 << 10
_PULSE_WORDS = 8
_PLACES = (1 << 10, SIZE // 2)
_HEAD_WORDS = 3
_ROOM = SIZE // 2 - (1 << 10) - 8 * _HEAD_WORDS


class Step(IntEnum):
    """What a worker is at."""

    STARTING = 0
    IDLE = 1
    FETCHING = 2
    COLLATING = 3
    WRITING = 4


class Pulse(NamedTuple):
    """What a worker was doing when it was last seen."""

    step: Step
    ticket: TicketNo | None
    position: int
    """Which sample of the batch, counted from 0; -1: none of them, or all (`__getitems__`)."""


class Snapshot(NamedTuple):
    """The state of the generators before a ticket."""

    ticket: TicketNo
    state: bytes


class Board:
    """One worker's board; the same class on both sides."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._words = segment.view.cast("q")
        self._turn = 0
        self.pulse = self._words[:_PULSE_WORDS]
        """[step, ticket + 1, position + 1], to be written in the worker's own loop: nanoseconds matter there."""

    @classmethod
    def over(cls, fd: int) -> Board:
        """The worker's side of a board, over this descriptor, which is closed."""
        board = cls(Segment(fd, SIZE))
        board.close()
        return board

    def read_pulse(self) -> Pulse:
        """What the worker is doing."""
        step, ticket, position = self.pulse[:3].tolist()
        return Pulse(Step(step), TicketNo(ticket - 1) if ticket else None, position - 1)

    def keep(self, ticket: TicketNo, state: bytes) -> bool:
        """Keep the state of the generators before this ticket; False if it is too large to be kept."""
        if len(state) > _ROOM:
            return False
        place = _PLACES[self._turn % 2]
        head = place // 8
        self._turn += 1
        self._words[head] = 0  # what is there is no longer whole
        body = place + 8 * _HEAD_WORDS
        self.segment.view[body : body + len(state)] = state
        self._words[head + 1] = ticket
        self._words[head + 2] = len(state)
        self._words[head] = self._turn
        return True

    def latest(self) -> Snapshot | None:
        """The last snapshot that is whole; only of a worker that is dead, or between its own tickets."""
        heads = [place // 8 for place in _PLACES]
        newest = max(heads, key=lambda head: self._words[head])
        if not self._words[newest]:
            return None
        body = 8 * (newest + _HEAD_WORDS)
        return Snapshot(
            TicketNo(self._words[newest + 1]), bytes(self.segment.view[body : body + self._words[newest + 2]])
        )

    def latest_ticket(self) -> TicketNo | None:
        """The ticket of the last whole snapshot, read while the worker may be writing the other one."""
        newest = max((place // 8 for place in _PLACES), key=lambda head: self._words[head])
        return TicketNo(self._words[newest + 1]) if self._words[newest] else None

    def close(self) -> None:
        """Let go of the descriptor."""
        self.segment.close_descriptor()


def create() -> Board:
    """A new board."""
    return Board(memory.create(SIZE))
