"""Tickets that bring their seeds go to whoever has time for them: a slow batch holds up nobody but those who wait for it.

A worker with nothing to do takes over what waits behind another's batch; if nothing does, it is given what comes after
all that has been planned, as far as shared memory allows. What is delivered, and in which order, stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.flow.delivery import Delivery
from antifreeze.engine.flow.dispatch import Dispatch
from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.orders import Orders
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.pool.worker import Worker

# So many times as many batches as usual may be ahead of a slow one: what small ones take in the trainer is bounded, too.
FURTHEST = 64


class Sharing:
    """Decides who makes which batch, when it is sent and not before."""

    def __init__(
        self, pool: Pool, orders: Orders, delivery: Delivery[Any], dispatch: Dispatch, arena: Arena, *, window: int
    ) -> None:
        self._pool = pool
        self._orders = orders
        self._delivery = delivery
        self._dispatch = dispatch
        self._arena = arena
        self._most_ahead = FURTHEST * window

    def least_busy(self) -> Worker:
        """Who is to get the next ticket."""
        return min(self._pool.workers, key=_tasks_of)

    def give(self, ticket: Ticket) -> None:
        """Send a ticket to the worker that has the least to do."""
        self._give_to(self.least_busy(), ticket)

    def _give_to(self, worker: Worker, ticket: Ticket) -> None:
        given = ticket._replace(worker=worker.number)
        self._delivery.reassign(given)
        self._orders.give(given)

    def employ_idle(self, plan_one: Callable[[], bool]) -> None:
        """The trainer waits: see that nobody else does. `plan_one` plans the next ticket, if there is one."""
        for worker in self._pool.workers:
            if worker.leases:
                continue
            if not self._relieve_another(worker) and not self._look_further(plan_one):
                return

    def call_off(self) -> None:
        """The pass ends here: what has not been begun never will be."""
        for ticket in self._dispatch.call_off():
            self._delivery.forget(ticket)
        for worker in self._pool.workers:
            for number in worker.leases:
                self._orders.withdraw(worker, number)

    def take_back(self, worker: Worker, number: TicketNo) -> None:
        """A worker has not begun what was withdrawn; another has it, unless nobody wants it any more."""
        self._orders.take_back(worker, number)
        ticket = self._delivery.stale(number)
        if ticket is not None:
            self._delivery.forget(ticket)
            self._dispatch.done()

    def _relieve_another(self, idle: Worker) -> bool:
        """Take over what is needed first of all that waits behind another's batch."""
        waiting = [(number, worker) for worker in self._pool.workers for number in self._queued_at(worker)]
        if not waiting or self._pool.hedges:  # of those, two have it already
            return False
        number, other = min(waiting, key=lambda each: each[0])
        ticket = self._delivery.ticket(number)
        assert ticket is not None
        self._orders.withdraw(other, number)
        self._give_to(idle, ticket)
        return True

    def _queued_at(self, worker: Worker) -> list[TicketNo]:
        """What waits behind the batch that this worker is at, and has not been withdrawn."""
        behind = list(worker.leases)[1:]
        return [number for number in behind if self._delivery.worker_of(number) == worker.number]

    def _look_further(self, plan_one: Callable[[], bool]) -> bool:
        dispatch = self._dispatch
        is_held_back = dispatch.peek() is not None or dispatch.is_overfull  # there is no room for what has been planned
        is_too_far = dispatch.ahead >= self._most_ahead or not self._arena.has_room_for_another
        if is_held_back or is_too_far or not plan_one():
            return False
        self._dispatch.widen()
        ticket = self._dispatch.next_to_send()
        assert ticket is not None
        self.give(ticket)
        return True


def _tasks_of(worker: Worker) -> int:
    return len(worker.leases)
