"""What each worker has been given since the last snapshot of its generators: what another one would have to redo. Pure.

Where no snapshot can be kept, that is all since the start. It is bounded: a history that has grown too long is *cut*, and
is of no use for going on where a worker stopped until there is a snapshot from after the cut.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket

# Indices per worker: some 40 MB, several epochs of a million samples among eight workers, and hours to redo.
MOST_INDICES = 1_000_000


class Pass(NamedTuple):
    """The beginning of another pass over an iterable dataset."""

    number: TicketNo
    """Of its first ticket."""
    shared_seed: int | None


class Question(NamedTuple):
    """A worker is asked where it is, before this ticket."""

    number: TicketNo


class History:
    """Tickets in the order in which they were sent, worker by worker, and where passes begin."""

    def __init__(self) -> None:
        self._sent: defaultdict[WorkerNo, deque[Ticket | Pass | Question]] = defaultdict(deque)
        self._cuts: dict[WorkerNo, TicketNo] = {}
        """Before these tickets, everything is forgotten."""

    def note_sent(self, ticket: Ticket) -> int:
        """A worker has been given this ticket; returns how many it would have to redo by now."""
        sent = self._sent[ticket.worker]
        sent.append(ticket)
        return len(sent)

    def note_begin(self, worker: WorkerNo, begun: Pass) -> None:
        """A worker has been told that another pass begins."""
        self._sent[worker].append(begun)

    def note_question(self, worker: WorkerNo, question: Question) -> None:
        """A worker has been asked where it is."""
        self._sent[worker].append(question)

    def forget_before(self, worker: WorkerNo, number: TicketNo) -> None:
        """There is a snapshot of this worker from right before this ticket."""
        sent = self._sent[worker]
        while sent and sent[0].number < number:
            sent.popleft()
        if self._cuts.get(worker, number) <= number:
            self._cuts.pop(worker, None)

    def cut_if_too_long(self, worker: WorkerNo, *, before: TicketNo) -> None:
        """There is no snapshot of this worker: too much to keep is forgotten, up to this ticket, which is not done."""
        sent = self._sent[worker]
        if sent and len(sent) * _size_of(sent[-1]) > MOST_INDICES:
            self.forget_before(worker, before)
            self._cuts[worker] = before

    def is_whole(self, worker: WorkerNo) -> bool:
        """Whether nothing is missing since the last snapshot, or since the start."""
        return worker not in self._cuts

    def of(self, worker: WorkerNo) -> tuple[Ticket | Pass | Question, ...]:
        """All that this worker was told since its last snapshot."""
        return tuple(self._sent[worker])


def _size_of(told: Ticket | Pass | Question) -> int:
    return len(told.index) if isinstance(told, Ticket) and isinstance(told.index, list | tuple) else 1
