"""Tickets to workers: each with a slot to put its batch into, and nothing forgotten of who was given what."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Hashable, Sequence, Set
from numbers import Integral
from typing import Any, SupportsIndex, TypeGuard

from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.backends import interruptions
from antifreeze.engine.flow.history import History, Pass, Question
from antifreeze.engine.marks import Marks
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.wire.messages import Begin, Message, Resume, Tell, Withdraw, Work

# Once in so many tickets a worker's history is looked at, and what is safe is forgotten.
LOOK_EVERY = 16


class Orders:
    """Gives tickets out, and knows what each worker has."""

    def __init__(self, pool: Pool, arena: Arena, marks: Marks | None = None) -> None:
        self._pool = pool
        self._arena = arena
        self._marks = marks
        self.unsent: deque[tuple[Ticket, Exception]] = deque()
        """Tickets that could not be sent, and why; the epoch raises it in their turn."""
        self.history = History()
        self.quarantined: set[Hashable] = set()
        """Indices that no worker survives: they are not fetched any more."""

    def give(self, ticket: Ticket) -> None:
        """A new ticket for the worker that it is meant for, and for the one that stands in for it, if there is one."""
        worker = self._pool.workers[ticket.worker]
        if self._pool.hedges and ticket.worker in self._pool.hedges:
            # Nothing is safe to forget now: the two may have kept snapshots at different times.
            if self._send(worker, ticket):
                self._note_sent(ticket)
                self._send(self._pool.hedges[ticket.worker], ticket)
        elif self._send(worker, ticket) and self._note_sent(ticket) % LOOK_EVERY == 0:
            self._forget_what_is_safe(worker)

    def _note_sent(self, ticket: Ticket) -> int:
        return self.history.note_sent(ticket) if ticket.seed is None else 1  # else what went before has no part in it

    def withdraw(self, worker: Worker, number: TicketNo) -> None:
        """This worker need not begin this ticket; it answers if it has not."""
        self._pool.send(worker, Withdraw(number))

    def redo_by_seed(self, worker: Worker, undone: Sequence[Ticket]) -> None:
        """All that another worker has not done; what that one has done before has no part in it."""
        for ticket in undone:
            self._send(worker, ticket)

    def redo(self, worker: Worker, *, undone: set[TicketNo], state: bytes | None) -> None:
        """All that a worker of this number was given since its last snapshot, which had this state."""
        if state is not None:
            self._pool.send(worker, Resume(state))
        is_whole = self.history.is_whole(worker.number)
        for told in self.history.of(worker.number):
            if isinstance(told, Pass):
                self._pool.send(worker, Begin(*told))
            elif isinstance(told, Question):
                if self._marks is not None and worker.number in self._marks.unknown:
                    self._pool.send(worker, Tell(*told))
            elif told.number in undone:
                self._send(worker, told)
            elif is_whole:  # else it would lead nowhere
                self._pool.send(worker, self._replay_of(told))

    def pass_over(self, ticket: Ticket) -> None:
        """Nobody wants this batch any more, but its worker is to read on as if somebody did."""
        self.history.note_sent(ticket)
        self._tell(ticket.worker, self._replay_of(ticket))

    def begin_pass(self, begun: Pass) -> None:
        """Every worker is to read its stream from the start, once it has done what it was given before."""
        for worker in self._pool.workers:
            self.history.note_begin(worker.number, begun)
            self._tell(worker.number, Begin(*begun))

    def ask(self, question: Question) -> None:
        """Every worker is to say where it is, once it has done what it was given before."""
        for worker in self._pool.workers:
            self.history.note_question(worker.number, question)
            self._tell(worker.number, Tell(*question))

    def take_up(self, worker: WorkerNo, state: bytes) -> None:
        """A worker is to begin where another one was, at another time."""
        self._tell(worker, Resume(state))

    def _tell(self, number: WorkerNo, message: Message) -> None:
        """Say this to a worker, and to the one that stands beside it: either of them may be the one that is kept."""
        for worker in filter(None, (self._pool.workers[number], self._pool.hedges.get(number))):
            self._pool.send(worker, message)

    def take_back(self, worker: Worker, ticket: TicketNo) -> None:
        """Nothing has been put into the slot of this ticket."""
        leased = worker.leases.pop(ticket)
        if leased is not None:
            self._arena.hand_back(leased)

    def lose(self, worker: Worker) -> None:
        """This worker will answer no more, but may still write."""
        for slot in worker.leases.values():
            if slot is not None:
                self._arena.lose_writer(slot)

    def confirm_death(self, worker: Worker) -> None:
        """This worker writes no more."""
        for slot in worker.leases.values():
            if slot is not None:
                self._arena.confirm_death(slot)
        worker.leases.clear()
        self._arena.forget_worker(worker.seat)

    def _send(self, worker: Worker, ticket: Ticket) -> bool:
        lease = self._arena.lease(worker.seat)
        worker.leases[ticket.number] = lease.slot
        work = Work(ticket.number, ticket.index, lease.slot, lease.size, lease.forget, False, ticket.seed)
        if self.quarantined:
            work = Work(*work[:7], *quarantine_for(ticket, self.quarantined))
        if self._marks is not None and self._marks.is_due(ticket):
            work = work._replace(is_marked=True)
        try:
            self._pool.send(worker, work, () if lease.descriptor is None else (lease.descriptor,))
        except Exception as error:  # an index that cannot be pickled, or no descriptor left
            if interruptions.is_of_a_handler(error):
                raise
            del worker.leases[ticket.number]
            self._arena.undo(lease, worker.seat)
            if worker is self._pool.workers[ticket.worker]:  # else the worker that it stands beside has it
                self.unsent.append((ticket, error))
            return False
        return True

    def _replay_of(self, ticket: Ticket) -> Work:
        return Work(ticket.number, ticket.index, None, 0, (), True, None, *quarantine_for(ticket, self.quarantined))

    def give_back_memory(self) -> None:
        """Memory is short: keep no slot that is free."""
        self._arena.give_back_free()

    def busy_workers(self) -> int:
        """How many workers have something to do."""
        return sum(bool(worker.leases) for worker in self._pool.workers)

    def _forget_what_is_safe(self, worker: Worker) -> None:
        """What was done before the last snapshot will not have to be done again."""
        number = worker.board.latest_ticket()
        if number is not None:
            self.history.forget_before(worker.number, number)
        else:
            self.history.cut_if_too_long(worker.number, before=min(worker.leases))


def quarantine_for(ticket: Ticket, quarantined: Set[Hashable]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The positions of its samples that are in quarantine, and all that must not be drawn in their place."""
    if not quarantined:
        return (), ()
    left_out = tuple(position for position, i in enumerate(ticket.samples) if key_of(i) in quarantined)
    return left_out, tuple(operator.index(i) for i in quarantined if _is_whole_number(i))


def key_of(index: Any) -> Hashable:
    """What an index is known by in a set, which holds no list; None: nothing."""
    key = tuple(index) if type(index) is list else index
    try:
        hash(key)
    except TypeError:  # a tuple may hold what cannot be in a set
        return None
    return key


def _is_whole_number(index: Hashable) -> TypeGuard[SupportsIndex]:
    return isinstance(index, Integral)
