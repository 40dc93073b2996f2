"""A worker has ended before its work was done: is it replaced, or is it time to say so? Pure.

Only what a worker was at when it ended is suspected: a sample, or the collating of a batch. The first end is redone. A
second end at the same place is no accident. What has been done in the meantime is beyond suspicion.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from typing import NamedTuple

from antifreeze.engine.arena.board import Pulse, Step
from antifreeze.engine.numbers import TicketNo, WorkerNo

# How often the same place may end a worker before it is held responsible.
MOST_ENDS = 2
# Starting has no place of its own, and may be hit by accident more than once.
MOST_ENDS_AT_START = 3
# Ends in a row, of any workers at any places, with nothing done between them: per worker, and beside that.
MOST_IDLE_ENDS_EACH, MOST_IDLE_ENDS = 2, 4


class Verdict(Enum):
    """What is to be done about a worker that has ended."""

    REPLACE = auto()
    POISON = auto()
    """Its place ends every worker that comes there."""
    HOPELESS = auto()
    """Workers end faster than anything gets done."""


class Place(NamedTuple):
    """Where a worker was when it ended."""

    ticket: TicketNo | None
    step: Step
    position: int
    worker: WorkerNo | None
    """Only for a worker that had not started: the others' places do not depend on who was there."""


class Recovery:
    """Remembers how workers ended, for as long as it matters."""

    def __init__(self, *, workers: int) -> None:
        self._ends: Counter[Place] = Counter()
        self._in_a_row = 0
        self._most_in_a_row = MOST_IDLE_ENDS_EACH * workers + MOST_IDLE_ENDS

    @property
    def is_calm(self) -> bool:
        """Whether no worker has ended since something was done."""
        return not self._in_a_row and not self._ends

    def note_done(self, ticket: TicketNo) -> None:
        """This ticket has been carried out: whatever ended workers on the way was not it."""
        self._in_a_row = 0
        for place in [place for place in self._ends if place.ticket in (ticket, None)]:
            del self._ends[place]

    def judge(self, worker: WorkerNo, pulse: Pulse) -> Verdict:
        """A worker has ended, and this is what it was at."""
        self._in_a_row += 1
        place = _place_of(worker, pulse)
        if place is not None:
            self._ends[place] += 1
            if self._ends[place] >= (MOST_ENDS_AT_START if pulse.step is Step.STARTING else MOST_ENDS):
                return Verdict.POISON
        return Verdict.HOPELESS if self._in_a_row >= self._most_in_a_row else Verdict.REPLACE

    def ends_at(self, worker: WorkerNo, pulse: Pulse) -> int:
        """How often workers have ended where this one did."""
        place = _place_of(worker, pulse)
        return self._ends[place] if place is not None else 0


def _place_of(worker: WorkerNo, pulse: Pulse) -> Place | None:
    match pulse.step:
        case Step.IDLE:
            return None
        case Step.STARTING:
            return Place(None, Step.STARTING, -1, worker)
        case step:
            return Place(pulse.ticket, step, pulse.position if step is Step.FETCHING else -1, None)
