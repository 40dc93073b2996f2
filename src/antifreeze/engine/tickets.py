"""Tickets on their way out: planned, given to workers when there is room for their batches, and accounted for.

A ticket is *under way* from its sending until its outcome has left our hands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.arena.board import Snapshot
from antifreeze.engine.backends import interruptions
from antifreeze.engine.crew import Crew
from antifreeze.engine.flow.delivery import Arrival
from antifreeze.engine.flow.dispatch import Dispatch
from antifreeze.engine.flow.history import Pass, Question
from antifreeze.engine.intent import Intent
from antifreeze.engine.marks import Marks, Unfinished
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.outcomes import Outcome, Unsent
from antifreeze.engine.plan.ticket import Plan, Ticket
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.sharing import Sharing


class Tickets:
    """Draws them from the plan, and sends them."""

    def __init__(
        self,
        pool: Pool,
        arena: Arena,
        crew: Crew,
        intent: Intent,
        *,
        window: int,
        in_order: bool,
        is_stream: bool,
        by_ticket: bool,
        is_batched: bool,
        marks: Marks | None,
    ) -> None:
        self._pool = pool
        self._orders = crew.orders
        self._delivery = crew.delivery
        self._outcomes = crew.outcomes
        self._succession = crew.succession
        self._supervisor = crew.supervisor
        self._intent = intent
        self._marks = marks
        self._is_stream = is_stream
        self.window = window
        """How many are planned ahead, as torch would."""
        share_out = None if in_order or by_ticket else window
        self.plan = Plan(workers=len(pool.workers), share_out=share_out, is_stream=is_stream, is_batched=is_batched)
        self.dispatch = Dispatch(window=window)
        self.sharing: Sharing | None = None
        """Who decides which worker makes what, where any may make anything."""
        if by_ticket:
            self.sharing = Sharing(pool, crew.orders, crew.delivery, self.dispatch, arena, window=window)

    # --- a pass begins

    def begin(
        self,
        next_index: Callable[[], Any],
        *,
        is_first: bool,
        shared_seed: int | None,
        seed: int | None,
        unfinished: Unfinished | None,
    ) -> None:
        """Break off what is under way, and plan and send as much as there is room for."""
        for arrival in self._delivery.break_off():
            self.throw_away(arrival)
        if self.sharing is not None:
            self.sharing.call_off()
        elif self._is_stream or self._marks is not None:
            self._pass_over_what_waits()
        self.dispatch.begin()
        self.plan.begin(next_index, seed=seed)
        self._succession.begin_pass(self.plan.next_number)
        if self._is_stream and not is_first:
            self._begin_streams(shared_seed)
        if self._marks is not None:
            self._begin_marks(self._marks, unfinished, is_first=is_first, shared_seed=shared_seed)
        for _ in range(self.window - self._delivery.expected):
            self.plan_one()
        self.send()

    def _pass_over_what_waits(self) -> None:
        """Have workers do now what they were to do in the pass before.

        Sent later, it would read what is of the pass that begins, or come after a worker has said where it is.
        """
        for ticket in self.dispatch.call_off():
            self._delivery.forget(ticket)
            self._orders.pass_over(ticket)

    def _begin_streams(self, shared_seed: int | None) -> None:
        self._orders.begin_pass(Pass(self.plan.next_number, shared_seed))

    def _begin_marks(
        self, marks: Marks, unfinished: Unfinished | None, *, is_first: bool, shared_seed: int | None
    ) -> None:
        first = self.plan.next_number
        marks.begin(first, unfinished)
        if unfinished is not None:
            self._take_up(unfinished, first, shared_seed)
        is_new = unfinished is None or unfinished.is_over
        if is_new and marks.asks_first(is_first_pass=is_first and unfinished is None):
            self.ask(marks)

    def ask(self, marks: Marks) -> None:
        """Have all workers say where they are."""
        marks.ask(self.plan.next_number)
        self._orders.ask(Question(self.plan.next_number))

    def _take_up(self, unfinished: Unfinished, first: TicketNo, shared_seed: int | None) -> None:
        """Bring workers to where others were another time, and plan what these had left undone."""
        for number, stand in enumerate(unfinished.stands):
            if isinstance(stand.place, bytes):
                self._orders.take_up(WorkerNo(number), stand.place)
                self._succession.note_origin(WorkerNo(number), Snapshot(first, stand.place))
        if unfinished.is_over:
            if self._is_stream:
                self._begin_streams(shared_seed)
            return
        self.plan.take_up(
            batch=unfinished.planned,
            turn=unfinished.turn,
            ended=[stand.has_ended for stand in unfinished.stands],
            asked=unfinished.asked,
        )
        for batch, worker, index in unfinished.again:
            self._orders.pass_over(self.plan.plan_again(worker, batch=batch, index=index, is_open=False))
        for batch, worker, index in unfinished.open:
            self._expect(self.plan.plan_again(worker, batch=batch, index=index, is_open=True))

    # --- out

    def plan_one(self) -> bool:
        """Draw the next ticket; False if there is none."""
        try:
            ticket = self.plan.draw()
        except Exception as error:  # of the sampler, unless a signal came while it was asked
            if not interruptions.is_of_a_handler(error):
                self._intent.raising(error)
            raise
        if ticket is None:
            return False
        self._expect(ticket)
        return True

    def _expect(self, ticket: Ticket) -> None:
        self._delivery.expect(ticket)
        self.dispatch.add(ticket)
        if self._marks is not None and not self._is_stream:
            self._marks.open[ticket.batch] = ticket

    def send(self) -> None:
        """Give out as many as there is room for."""
        give = self._orders.give if self.sharing is None else self.sharing.give
        while (self._supervisor.most_busy is None or self._may_send()) and (
            ticket := self.dispatch.next_to_send()
        ) is not None:
            give(ticket)
        if self._orders.unsent:
            self.note_unsent()

    def _may_send(self) -> bool:
        """Whether the worker that comes next may be at work beside those that are."""
        ticket = self.dispatch.peek()
        if ticket is None or self._supervisor.most_busy is None:
            return True
        worker = self._pool.workers[ticket.worker] if self.sharing is None else self.sharing.least_busy()
        is_at_work = bool(worker.leases)
        return self._orders.busy_workers() + (not is_at_work) <= self._supervisor.most_busy

    def employ_idle(self, sharing: Sharing) -> None:
        """See that no worker has nothing to do while the trainer waits."""
        if self._supervisor.most_busy is None:
            sharing.employ_idle(self.plan_one)
            self.note_unsent()

    # --- and back

    def note_unsent(self) -> None:
        """What could not be sent comes back with the reason."""
        while self._orders.unsent:
            ticket, error = self._orders.unsent.popleft()
            self.arrive(ticket.number, Unsent(error))

    def arrive(self, number: TicketNo, outcome: Outcome) -> None:
        """The outcome of this one is here; if nobody wants it any more, there is room for another."""
        stale = self._delivery.arrive(number, outcome)
        if stale is not None:
            self.throw_away(stale)
            self.send()

    def end_stream(self, worker: WorkerNo, number: TicketNo) -> None:
        """The stream of a worker has ended: another one gets the ticket that would have been its next."""
        if self._delivery.is_expected(number) and self.plan.end(worker):
            self.plan_one()
            self.send()

    def throw_away(self, arrival: Arrival[Outcome]) -> None:
        """Nobody wants this outcome any more."""
        self._outcomes.discard(arrival.outcome)
        self.dispatch.done()
