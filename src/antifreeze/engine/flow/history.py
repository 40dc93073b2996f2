"""What each worker has been given since the last snapshot of its generators: what another one would have to redo. Pure.

Where no snapshot can be kept, that is all since the start. It is bounded: a history that has grown too long is *cut*, and
is of no use for going on where a worker stopped until there is a snapshot from after the cut. Tickets of a stream, which
follow from each other, are kept as the first of them and their number: an endless one takes no more memory.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterable
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


class _Run:
    """Tickets whose numbers, batches and items are at equal distances; there are at least two."""

    __slots__ = ("_steps", "count", "first")

    def __init__(self, first: Ticket, second: Ticket) -> None:
        self.first = first
        self.count = 2
        self._steps = second.number - first.number, second.batch - first.batch, _start(second) - _start(first)

    def at(self, place: int) -> Ticket:
        """One of them."""
        first, (number, batch, start) = self.first, self._steps
        index, begin = first.index, _start(first) + place * start
        return first._replace(
            number=TicketNo(first.number + place * number),
            batch=first.batch + place * batch,
            index=range(begin, begin + len(index)) if type(index) is range else begin,
        )

    def take(self, ticket: Ticket) -> bool:
        """Whether this is the next one; if it is, it is one of them from now on."""
        first, count, (number, batch, start) = self.first, self.count, self._steps
        is_next = (
            ticket.number == first.number + count * number
            and ticket.batch == first.batch + count * batch
            and _is_alike(first, ticket)
            and _start(ticket) == _start(first) + count * start
        )
        self.count += is_next
        return is_next

    def forget_before(self, number: TicketNo) -> int:
        """Leave out those that come before this number; returns how many there were."""
        before = min(self.count, max(0, -(-(number - self.first.number) // self._steps[0])))
        self.first = self.at(before)
        self.count -= before
        return before


class History:
    """Tickets in the order in which they were sent, worker by worker, and where passes begin."""

    def __init__(self) -> None:
        self._sent: defaultdict[WorkerNo, deque[Ticket | _Run | Pass | Question]] = defaultdict(deque)
        self._counts: defaultdict[WorkerNo, int] = defaultdict(int)
        """How many things each worker was told, those of runs one by one."""
        self._cuts: dict[WorkerNo, TicketNo] = {}
        """Before these tickets, everything is forgotten."""

    def note_sent(self, ticket: Ticket) -> int:
        """A worker has been given this ticket; returns how many it would have to redo by now."""
        sent = self._sent[ticket.worker]
        if type(ticket.index) is list or not sent or not _join(sent, ticket):  # most are lists, and join nothing
            sent.append(ticket)
        self._counts[ticket.worker] += 1
        return self._counts[ticket.worker]

    def note_begin(self, worker: WorkerNo, begun: Pass) -> None:
        """A worker has been told that another pass begins."""
        self._sent[worker].append(begun)
        self._counts[worker] += 1

    def note_question(self, worker: WorkerNo, question: Question) -> None:
        """A worker has been asked where it is."""
        self._sent[worker].append(question)
        self._counts[worker] += 1

    def forget_before(self, worker: WorkerNo, number: TicketNo) -> None:
        """There is a snapshot of this worker from right before this ticket."""
        sent = self._sent[worker]
        while sent:
            told = sent[0]
            if isinstance(told, _Run):
                self._counts[worker] -= told.forget_before(number)
                if told.count:
                    break
            elif told.number >= number:
                break
            else:
                self._counts[worker] -= 1
            sent.popleft()
        if self._cuts.get(worker, number) <= number:
            self._cuts.pop(worker, None)

    def cut_if_too_long(self, worker: WorkerNo, *, before: TicketNo) -> None:
        """There is no snapshot of this worker: too much to keep is forgotten, up to this ticket, which is not done."""
        sent = self._sent[worker]
        if sent and self._counts[worker] * _size_of(sent[-1]) > MOST_INDICES:
            self.forget_before(worker, before)
            self._cuts[worker] = before

    def is_whole(self, worker: WorkerNo) -> bool:
        """Whether nothing is missing since the last snapshot, or since the start."""
        return worker not in self._cuts

    def of(self, worker: WorkerNo) -> tuple[Ticket | Pass | Question, ...]:
        """All that this worker was told since its last snapshot."""
        return tuple(itertools.chain.from_iterable(map(_expanded, self._sent[worker])))


def _join(sent: deque[Ticket | _Run | Pass | Question], ticket: Ticket) -> bool:
    """Whether a ticket follows from those before it, so that it need not be kept."""
    last = sent[-1]
    if isinstance(last, _Run):
        return last.take(ticket)
    if not isinstance(last, Ticket) or not _is_alike(last, ticket):
        return False
    sent[-1] = _Run(last, ticket)
    return True


def _is_alike(one: Ticket, other: Ticket) -> bool:
    """Whether both are for a single item, or both for as many that follow each other."""
    first, second = one.index, other.index
    if type(first) is range and type(second) is range:
        return first.step == second.step == 1 and first.stop - first.start == second.stop - second.start
    return type(first) is int and type(second) is int


def _start(ticket: Ticket) -> int:
    """The first item of a ticket of a stream."""
    index = ticket.index
    return index.start if type(index) is range else index


def _expanded(told: Ticket | _Run | Pass | Question) -> Iterable[Ticket | Pass | Question]:
    return map(told.at, range(told.count)) if isinstance(told, _Run) else (told,)


def _size_of(told: Ticket | _Run | Pass | Question) -> int:
    return len(told.index) if isinstance(told, Ticket) and isinstance(told.index, list | tuple) else 1
