"""Outcomes arrive in any order and leave in plan order, each exactly once; or, if the user wants that, as they come.

An outcome of an epoch that was broken off is *stale*: it is handed back to the caller at once, who throws it away.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.errors import InternalError

T = TypeVar("T")


class Arrival(NamedTuple, Generic[T]):
    """What became of a ticket."""

    ticket: Ticket
    outcome: T


class Delivery(Generic[T]):
    """Puts outcomes back into the order of their tickets."""

    def __init__(self, *, in_order: bool = True) -> None:
        self._in_order = in_order
        self._expected: dict[TicketNo, Ticket] = {}
        self._stale: dict[TicketNo, Ticket] = {}
        self._arrived: dict[TicketNo, T] = {}
        self.taken = 0
        """How many outcomes of this epoch have left."""

    def expect(self, ticket: Ticket) -> None:
        """This ticket will be delivered after all that were expected before it."""
        self._expected[ticket.number] = ticket

    def next_ticket(self) -> Ticket | None:
        """The ticket whose outcome the user gets next; None at the end of the epoch."""
        return next(iter(self._expected.values()), None)

    def reassign(self, ticket: Ticket) -> None:
        """Another worker than before makes this one."""
        (self._expected if ticket.number in self._expected else self._stale)[ticket.number] = ticket

    def worker_of(self, number: TicketNo) -> WorkerNo | None:
        """Who is to make this one; None: nobody waits for it."""
        ticket = self._expected.get(number)
        return None if ticket is None else ticket.worker

    def stale(self, number: TicketNo) -> Ticket | None:
        """The ticket with this number, if it is of an epoch that was broken off."""
        return self._stale.get(number)

    def is_wanted(self, number: TicketNo) -> bool:
        """Whether there is no outcome of this ticket yet."""
        return (number in self._expected and number not in self._arrived) or number in self._stale

    def ticket(self, number: TicketNo) -> Ticket | None:
        """The ticket with this number, if its outcome has not been taken yet."""
        return self._expected.get(number) or self._stale.get(number)

    def has_next(self) -> bool:
        """Whether the outcome that the user gets next is here."""
        return bool(self._arrived) and (not self._in_order or next(iter(self._expected)) in self._arrived)

    def peek(self) -> Arrival[T]:
        """What `take` would give; only after `has_next()`."""
        number = self._next()
        return Arrival(self._expected[number], self._arrived[number])

    @property
    def expected(self) -> int:
        """How many outcomes the user is still to get, as far as it is planned."""
        return len(self._expected)

    def is_expected(self, number: TicketNo) -> bool:
        """Whether the user is still to get the outcome of this ticket."""
        return number in self._expected

    def arrive(self, number: TicketNo, outcome: T) -> Arrival[T] | None:
        """Note an outcome; hand it back if nobody waits for it any more."""
        if number in self._expected:
            if number in self._arrived:
                raise InternalError(f"two outcomes for ticket {number}")
            self._arrived[number] = outcome
            return None
        if number in self._stale:
            return Arrival(self._stale.pop(number), outcome)
        raise InternalError(f"an outcome for ticket {number}, which is not under way")

    def forget(self, ticket: Ticket) -> None:
        """This ticket is of an epoch that was broken off, and has no outcome."""
        del self._stale[ticket.number]

    def take(self) -> Arrival[T]:
        """The next outcome; only after `has_next()`."""
        number = self._next()
        outcome = self._arrived.pop(number)
        self.taken += 1
        return Arrival(self._expected.pop(number), outcome)

    def put_back(self, arrival: Arrival[T]) -> None:
        """This outcome was taken and could not be given to the user: it is the next again."""
        number = arrival.ticket.number
        self.taken -= 1
        self._expected = {number: arrival.ticket, **self._expected}
        self._arrived = {number: arrival.outcome, **self._arrived}

    def _next(self) -> TicketNo:
        return next(iter(self._expected if self._in_order else self._arrived))

    def outstanding(self) -> list[Ticket]:
        """Tickets whose outcome has not arrived yet, those of broken-off epochs first."""
        waiting = [ticket for number, ticket in self._expected.items() if number not in self._arrived]
        return [*self._stale.values(), *waiting]

    def break_off(self) -> list[Arrival[T]]:
        """The epoch ends here: whatever has arrived is handed back, whatever has not becomes stale."""
        arrived = [Arrival(self._expected.pop(number), outcome) for number, outcome in self._arrived.items()]
        self._arrived.clear()
        self._stale.update(self._expected)
        self._expected.clear()
        self.taken = 0
        return arrived
