"""What comes back: messages, deaths and what stems have to say, each turned into an outcome, a successor, or a failure."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from typing import NoReturn

from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.chronicle import Failure
from antifreeze.engine.crew import Crew
from antifreeze.engine.crossing.raised import load_error
from antifreeze.engine.flow.losses import Losses
from antifreeze.engine.marks import Marks
from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.outcomes import Nothing, Outcome, Over, Raised
from antifreeze.engine.pinning import Pinner
from antifreeze.engine.pool.happenings import Gone, Happening, Heard, Lost, StemSaid, close_all
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.sharing import Sharing
from antifreeze.engine.tickets import Tickets
from antifreeze.engine.times import Times
from antifreeze.engine.wire.messages import (
    Emptied,
    Ended,
    Failed,
    Filled,
    Mishap,
    Returned,
    Spent,
    Told,
    Unfit,
)
from antifreeze.errors import InternalError
from antifreeze.observe.ledger import Kind
from antifreeze.observe.say import say_once


class Intake:
    """Takes in all that happens to workers."""

    def __init__(
        self,
        pool: Pool,
        arena: Arena,
        crew: Crew,
        tickets: Tickets,
        *,
        losses: Losses,
        times: Times,
        pinner: Pinner | None,
        marks: Marks | None,
    ) -> None:
        self._pool = pool
        self._arena = arena
        self._orders = crew.orders
        self._delivery = crew.delivery
        self._outcomes = crew.outcomes
        self._supervisor = crew.supervisor
        self._chronicle = crew.chronicle
        self._tickets = tickets
        self._losses = losses
        self._times = times
        self._pinner = pinner
        self._marks = marks
        self._smallest_window = tickets.window
        self.waited_s = 0.0
        """How long no batch has come while one was waited for."""
        self.failure: Failure | None = None
        """Why nothing more will come."""

    def take_in(self, happenings: Sequence[Happening]) -> None:
        """All that has happened, in this order; what comes after a failure is kept."""
        happened = deque(happenings)
        try:
            while happened:
                self.react_to(happened.popleft())
        finally:
            self._pool.put_back(happened)

    def react_to(self, happening: Happening) -> None:
        """Do what has to be done about it."""
        match happening:
            case Heard():
                self.receive(happening)
            case Lost(worker):
                self._times.read(worker)
                if not worker.is_dismissed:
                    self.fail_if(self._supervisor.recover(happening))
            case Gone(worker):
                self._times.read(worker)
                self._orders.confirm_death(worker)
            case StemSaid(stem, Unfit(error)):
                self.fail_if(functools.partial(load_error, error, stem.find))

    def receive(self, heard: Heard) -> None:
        """What a worker has said."""
        worker, message, descriptors = heard
        if worker.is_dismissed:  # since it said this
            close_all(descriptors)
            return
        if self._tickets.sharing is not None and self._is_withdrawn(heard, self._tickets.sharing):
            return
        if isinstance(message, Filled):
            self._note_answer(worker, message, self._outcome_of_batch(message, heard))
        elif isinstance(message, Failed | Emptied | Ended):
            self._note_answer(worker, message, self._outcome_without_batch(worker, message))
        elif isinstance(message, Spent):
            self._supervisor.renew(worker, message)
            self._tickets.note_unsent()  # what was to be done
        elif isinstance(message, Told) and self._marks is not None:
            self._marks.note_told(worker.number, worker.seat, *message)
        else:
            raise InternalError(f"worker {worker.number} said {message!r}")

    def _outcome_of_batch(self, message: Filled, heard: Heard) -> Outcome:
        outcome: Outcome = self._outcomes.of_batch(message, heard)
        if self._pinner is not None and self._delivery.is_expected(message.ticket):
            outcome = self._outcomes.pin(outcome, self._pinner)
        if self._arena.window != self._tickets.dispatch.window:
            self._fit_window()
        return outcome

    def _outcome_without_batch(self, worker: Worker, message: Failed | Emptied | Ended) -> Outcome:
        self._orders.take_back(worker, message.ticket)
        if isinstance(message, Failed):
            return Raised(message.error, worker.stem.find, message.position, worker.known_pid)
        if isinstance(message, Ended):
            return Over()
        ticket = self._delivery.ticket(message.ticket)
        self._chronicle.note(Kind.BATCH_SKIPPED, "nothing is left of it", worker, ticket)
        return Nothing()

    def _note_answer(self, worker: Worker, message: Filled | Failed | Emptied | Ended, outcome: Outcome) -> None:
        number = message.ticket
        if message.mishaps:
            self._note_mishaps(worker, number, message.mishaps)
        if self._marks is not None and message.mark is not None:
            self._marks.note_answer(worker.seat, number, message.mark)
        self.waited_s = 0.0
        if not self._supervisor.is_calm:
            self._supervisor.note_done(worker, number)
        self._tickets.arrive(number, outcome)
        if isinstance(outcome, Over):
            self._tickets.end_stream(worker.number, number)

    def _is_withdrawn(self, heard: Heard, sharing: Sharing) -> bool:
        """Whether it is about a ticket that another worker has taken over; if so, nothing is left to do about it."""
        worker, message = heard.worker, heard.message
        if isinstance(message, Returned):
            sharing.take_back(worker, message.ticket)
            self._tickets.send()  # there may be room for it now
            return True
        if not isinstance(message, Filled | Failed | Emptied) or self._delivery.is_wanted(message.ticket):
            return False
        if isinstance(message, Filled):  # it had been begun, and the other was faster: both have made the same
            self._outcomes.discard(self._outcomes.of_batch(message, heard))
        else:
            self._orders.take_back(worker, message.ticket)
        if not self._supervisor.is_calm:
            self._supervisor.note_done(worker, message.ticket)
        return True

    def _note_mishaps(self, worker: Worker, number: TicketNo, mishaps: Sequence[Mishap]) -> None:
        ticket = self._delivery.ticket(number)
        if ticket is None:
            raise InternalError(f"mishaps of ticket {number}, which is not under way")
        self._chronicle.note_mishaps(worker, ticket, mishaps)
        self._losses.note_lost(number, [f"{mishap.sample}: {mishap.exception}" for mishap in mishaps if mishap.is_loss])

    def _fit_window(self) -> None:
        dispatch = self._tickets.dispatch
        dispatch.fit(self._arena.window)
        if dispatch.window < self._smallest_window:
            self._smallest_window = dispatch.window
            what = (
                f"batches of {self._arena.batch_bytes >> 20} MB: prefetching {dispatch.window} at a time instead of "
                f"{self._tickets.window}, to stay within {self._arena.budget_bytes >> 20} MB of shared memory"
            )
            self._chronicle.note(Kind.WINDOW_SHRUNK, what)
            say_once(what)

    def fail_if(self, failure: Failure | None) -> None:
        """Work is lost with no way to get it done: nothing that would come after it is given out."""
        if failure is not None:
            self.fail(failure)
        self._tickets.note_unsent()  # what was to be done again

    def fail(self, failure: Failure) -> NoReturn:
        """Nothing more will come."""
        self.failure = failure
        self._pool.stop()
        raise failure()
