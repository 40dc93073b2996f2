"""The path of a batch, from the trainer's point of view: plan → dispatch → send → … → deliver → release. Start here.

An `Epoch` serves one iterator: one pass over the data, or several when its workers are kept. All of it happens inside
`next_batch()`, in the thread that calls it; there is no queue, and no other thread but the one that pins batches, if the
user wants that. What becomes of workers that are lost or stuck is the supervisor's business.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.arena.board import Snapshot
from antifreeze.engine.backends import interruptions
from antifreeze.engine.backends.start import OnlyInProcess
from antifreeze.engine.chronicle import Failure
from antifreeze.engine.crew import assemble
from antifreeze.engine.crossing.raised import load_error
from antifreeze.engine.crossing.state import tell
from antifreeze.engine.flow.delivery import Arrival
from antifreeze.engine.flow.dispatch import Dispatch
from antifreeze.engine.flow.history import Pass, Question
from antifreeze.engine.flow.losses import Losses
from antifreeze.engine.hedging import Rescue
from antifreeze.engine.inline.bench import InlineBench
from antifreeze.engine.inline.epoch import Course, InlineEpoch
from antifreeze.engine.marks import Marks, Unfinished
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.outcomes import Nothing, Outcome, Over, Pinning, Raised, Unsent, opened_again
from antifreeze.engine.pinning import Pinner
from antifreeze.engine.plan.ticket import Plan, Ticket
from antifreeze.engine.pool.ending import stop_deadline
from antifreeze.engine.pool.happenings import Gone, Happening, Heard, Lost, StemSaid
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.sharing import Sharing
from antifreeze.engine.succession import Estate
from antifreeze.engine.times import Times
from antifreeze.engine.wire.messages import (
    Emptied,
    Ended,
    Failed,
    Filled,
    Mishap,
    Returned,
    Settled,
    Spent,
    Told,
    Unfit,
)
from antifreeze.engine.witness import Witness
from antifreeze.errors import InternalError
from antifreeze.observe.accounts import Account
from antifreeze.observe.ledger import Kind
from antifreeze.observe.say import say_once
from antifreeze.settings import Options

# The wait is cut into slices of this length; a death or a message ends it at once.
SLICE_S = 1.0
# For so long a batch may keep the trainer waiting before it is called slow, and all others are heard and employed; then
# so many batches are waited for without patience, for where one is slow, others are.
PATIENCE_S, HURRY = 0.001, 64
# So many messages of one worker find room in its channel, whatever their size, while nobody listens.
MOST_UNHEARD = 16
SHUT_DOWN = "the workers of this iterator have been shut down. iter(loader) starts others"


class Epoch:
    """Moves tickets out and batches back."""

    def __init__(
        self,
        pool: Pool,
        arena: Arena,
        *,
        workers: int,
        window: int,
        options: Options,
        account: Account,
        witness: Witness,
        rescue: Rescue | None = None,
        timeout_s: float = 0.0,
        in_order: bool = True,
        is_stream: bool = False,
        by_ticket: bool = False,
        pinner: Pinner | None = None,
        make_bench: Callable[[], InlineBench] | None = None,
        marks: Marks | None = None,
    ) -> None:
        """`make_bench`: makes what can go on in this process if a fault of ours ends the workers."""
        self._pool = pool
        self._make_bench = make_bench
        self._account = account
        self.marks = marks
        self._pinner = pinner
        self._awaits_pinning = False
        self._arena = arena
        self._is_shared_out = is_stream or not (in_order or by_ticket)
        """Whether the plan must know what each worker has under way, or has come to the end of."""
        self._is_stream = is_stream
        self._plan = Plan(workers=workers, share_out=None if in_order or by_ticket else window, is_stream=is_stream)
        self._dispatch = Dispatch(window=window)
        crew = assemble(
            pool,
            arena,
            options=options,
            account=account,
            witness=witness,
            rescue=rescue,
            in_order=in_order,
            is_stream=is_stream,
            marks=marks,
        )
        self._orders = crew.orders
        self._delivery = crew.delivery
        self._sharing: Sharing | None = None
        if by_ticket:
            self._sharing = Sharing(pool, crew.orders, crew.delivery, self._dispatch, arena, window=window)
        self._awaited: TicketNo | None = None
        self._hurry = 0
        """For so many batches the trainer has no patience."""
        self._outcomes = crew.outcomes
        self._succession = crew.succession
        self._supervisor = crew.supervisor
        self._chronicle = crew.chronicle
        self.misgivings = crew.misgivings
        self._times = Times(account.tally)
        account.sources.add(self)
        self._is_strict = options.policy.is_strict
        self._losses = Losses(options.policy.max_lost)
        self._window = self._smallest_window = window
        self._can_wait_for_one = in_order and pinner is None and window <= MOST_UNHEARD * workers
        self._timeout_s = timeout_s
        """torch's own `timeout=`; 0: none."""
        self._pinning_limit_s = timeout_s or options.all_blocked_s
        self._waited_s = 0.0
        """How long no batch has come while one was waited for."""
        self._failure: Failure | None = None
        self._tear: Failure | None = None
        self._in_hand: Arrival[Outcome] | None = None
        """What was taken, and has not reached the user by a fault of ours."""
        self._meant = 0
        """The `id` of the error that was last raised on purpose; not the error, whose traceback would hold this epoch."""

    @property
    def has_failed(self) -> bool:
        """Whether this epoch, and any that would follow it, can give no more batches."""
        return self._failure is not None or self._tear is not None or self._pool.is_stopped

    def begin(
        self,
        next_index: Callable[[], Any],
        *,
        is_first: bool = True,
        shared_seed: int | None = None,
        seed: int | None = None,
        unfinished: Unfinished | None = None,
    ) -> None:
        """Start a pass over the data: plan as many batches ahead as torch would, and have them made.

        `seed`: that of this pass, from which those of its tickets follow. `unfinished`: it goes on where it was another
        time; `next_index` gives what comes after that.
        """
        for arrival in self._delivery.break_off():
            self._throw_away(arrival)
        if self._sharing is not None:
            self._sharing.call_off()
        self._losses.begin()
        self._plan.begin(next_index, seed=seed)
        self._succession.begin_pass(self._plan.next_number)
        if self._is_stream and not is_first:
            self._begin_streams(shared_seed)
        if self.marks is not None:
            self._begin_marks(self.marks, unfinished, is_first=is_first, shared_seed=shared_seed)
        for _ in range(self._window - self._delivery.expected):
            self._plan_one()
        self._send_work()

    def _begin_marks(
        self, marks: Marks, unfinished: Unfinished | None, *, is_first: bool, shared_seed: int | None
    ) -> None:
        first = self._plan.next_number
        marks.begin(first, unfinished)
        if unfinished is not None:
            self._take_up(unfinished, first, shared_seed)
        is_new = unfinished is None or unfinished.is_over
        if is_new and marks.asks_first(is_first_pass=is_first and unfinished is None):
            self._ask(marks)

    def _ask(self, marks: Marks) -> None:
        marks.ask(self._plan.next_number)
        self._orders.ask(Question(self._plan.next_number))

    def _take_up(self, unfinished: Unfinished, first: TicketNo, shared_seed: int | None) -> None:
        """Bring workers to where others were another time, and plan what these had left undone."""
        for number, stand in enumerate(unfinished.stands):
            if stand.place is not None:
                self._orders.take_up(WorkerNo(number), stand.place)
                self._succession.note_origin(WorkerNo(number), Snapshot(first, stand.place))
        if unfinished.is_over:
            if self._is_stream:
                self._begin_streams(shared_seed)
            return
        self._plan.take_up(
            batch=unfinished.planned,
            turn=unfinished.turn,
            ended=[stand.has_ended for stand in unfinished.stands],
            asked=unfinished.asked,
        )
        for batch, worker, index in unfinished.again:
            self._orders.pass_over(self._plan.plan_again(worker, batch=batch, index=index, is_open=False))
        for batch, worker, index in unfinished.open:
            self._expect(self._plan.plan_again(worker, batch=batch, index=index, is_open=True))

    def _begin_streams(self, shared_seed: int | None) -> None:
        for ticket in self._dispatch.call_off():  # sent later, they would read what is of the pass that begins
            self._delivery.forget(ticket)
            self._orders.pass_over(ticket)
        self._orders.begin_pass(Pass(self._plan.next_number, shared_seed))

    def next_batch(self) -> Any:
        """The next batch in plan order, or what the user's code raised in its place; StopIteration at the end."""
        if self._pool.is_abandoned:
            raise RuntimeError(
                "this iterator belongs to the process that made it; its workers do not hear this one. Make one here: "
                "iter(loader)"
            )
        if self._tear is not None:  # also if later batches are there: an earlier one may be lost
            raise self._tear()
        self._meant = 0
        self._awaits_pinning = False
        if self._pinner is not None and not self._pool.is_stopped:
            self._take_in_what_has_come()
        while True:
            while not self._delivery.has_next():
                if self._failure is not None:
                    raise self._failure()
                ticket = self._delivery.next_ticket()
                if ticket is not None and self._pool.is_stopped:
                    raise RuntimeError(SHUT_DOWN)
                if ticket is None:
                    if not self._is_strict and self._losses.judge(at_end=True):
                        self._fail(self._losses.error)
                    raise StopIteration
                self._hear_from(ticket)
            if self._is_shared_out and self._passes_over():
                continue
            if self._pinner is not None:
                self._await_pinning(self._pinner)
            if not self._dispatch.narrow():
                self._plan_one()  # before the batch is taken: an error of the sampler must not cost it
            arrival = self._delivery.take()
            if self.marks is not None:
                self.marks.note_delivered(arrival.ticket)
            self._dispatch.done()
            opened = None
            try:
                if self._arena.has_free:  # not to keep the worker waiting; else the slot of this batch may become free
                    self._send_work()
                opened = self._outcomes.open(arrival)
                self._send_work()
            except Exception:
                self._in_hand = arrival if opened is None else opened_again(arrival, *opened)
                raise
            batch, error = opened
            if not self._is_strict and self._losses.note_delivered(arrival.ticket):
                self._fail(self._losses.error)
            if error is not None:
                self._meant = id(error)
                raise error
            if type(arrival.outcome) is not Nothing:
                return batch

    def _passes_over(self) -> bool:
        """Whether what comes next is no batch but the end of a worker's stream; if it is one, its worker has room again."""
        arrival = self._delivery.peek()
        if isinstance(arrival.outcome, Over):
            self._delivery.take()
            if self.marks is not None:
                self.marks.note_end(arrival.ticket)
            self._dispatch.done()
            self._send_work()
            return True
        self._plan.done(arrival.ticket)
        return False

    def _take_in_what_has_come(self) -> None:
        """For it is pinned beside the user's step."""
        try:
            self._take_in(self._pool.wait(None, deadline=0.0))
        except Exception as error:  # a failure is kept, and raised behind the batches that came before it
            if self._failure is None or interruptions.is_of_a_handler(error):
                raise

    def _await_pinning(self, pinner: Pinner) -> None:
        ticket, outcome = self._delivery.peek()
        if not isinstance(outcome, Pinning):
            return
        self._awaits_pinning = True  # an interrupt in here loses nothing
        pinner.await_pinned(outcome.pinned, batch=ticket.batch, timeout_s=self._pinning_limit_s)
        self._awaits_pinning = False

    def close(self) -> None:
        """End the workers, and let go of the shared memory."""
        if self._failure is None and self._delivery.next_ticket() is not None:
            self._failure = functools.partial(RuntimeError, SHUT_DOWN)
        self._delivery.break_off()
        self._pool.stop()
        if self._pinner is not None:
            self._pinner.close()
        self.read_times()
        self._arena.close()

    def read_times(self) -> None:
        """Add what workers have spent so far to the loader's tally."""
        for worker in (*self._pool.workers, *self._pool.hedges.values()):
            self._times.read(worker)

    def _plan_one(self) -> bool:
        """Draw the next ticket; False if there is none."""
        try:
            ticket = self._plan.draw()
        except Exception as error:  # of the sampler, unless a signal came while it was asked
            if not interruptions.is_of_a_handler(error):
                self._meant = id(error)
            raise
        if ticket is None:
            return False
        self._expect(ticket)
        return True

    def _expect(self, ticket: Ticket) -> None:
        self._delivery.expect(ticket)
        self._dispatch.add(ticket)
        if self.marks is not None and not self._is_stream:
            self.marks.open[ticket.batch] = ticket

    def _send_work(self) -> None:
        give = self._orders.give if self._sharing is None else self._sharing.give
        while (self._supervisor.most_busy is None or self._may_send()) and (
            ticket := self._dispatch.next_to_send()
        ) is not None:
            give(ticket)
        if self._orders.unsent:
            self._note_unsent()

    def _may_send(self) -> bool:
        """Whether the worker that comes next may be at work beside those that are."""
        ticket = self._dispatch.peek()
        if ticket is None or self._supervisor.most_busy is None:
            return True
        worker = self._pool.workers[ticket.worker] if self._sharing is None else self._sharing.least_busy()
        is_at_work = bool(worker.leases)
        return self._orders.busy_workers() + (not is_at_work) <= self._supervisor.most_busy

    def _note_unsent(self) -> None:
        while self._orders.unsent:
            ticket, error = self._orders.unsent.popleft()
            self._arrive(ticket.number, Unsent(error))

    def _hear_from(self, expected: Ticket) -> None:
        """Take in whatever has arrived, waiting for it if need be."""
        worker = self._pool.workers[expected.worker]
        heard = self._pool.try_receive(worker)
        if heard is not None:
            self._receive(heard)
            return
        # One that has not been sent waits for room, which any worker can make; one with a hedge can come from either.
        only_one = self._can_wait_for_one and expected.number in worker.leases and not self._pool.hedges
        if self._sharing is not None:
            if expected.number != self._awaited:
                self._awaited, self._hurry = expected.number, max(0, self._hurry - 1)
                if only_one and not self._hurry:
                    self._take_in(self._pool.wait(worker, deadline=time.monotonic() + PATIENCE_S))
                    return
            elif not self._hurry:
                self._hurry = HURRY
            only_one = False
            self._employ_idle(self._sharing)
        self._listen_to(worker if only_one else None)

    def await_marks(self, *, at_end: bool) -> None:
        """Wait until all workers have said where they are, if they were asked; at the end of a pass, they are."""
        if at_end and self.marks is not None and self.marks.is_behind() and not self._pool.is_stopped:
            self._ask(self.marks)
        while self.marks is not None and self.marks.unknown and not self._pool.is_stopped:
            self._listen_to(None)

    def _listen_to(self, worker: Worker | None) -> None:
        """Wait for a slice, for one worker or for all of them."""
        began = time.monotonic()
        slice_s = min(SLICE_S, self._timeout_s - self._waited_s) if self._timeout_s else SLICE_S
        self._take_in(self._pool.wait(worker, deadline=began + slice_s))
        if time.monotonic() - began >= slice_s:
            self._take_in(self._pool.wait(None, deadline=began))  # what others have said meanwhile
            # A suspended machine, or a stopped trainer, must not count for more than the slice that it was.
            self._fail_if(self._supervisor.look(passed_s=slice_s))
            self._waited_s += slice_s
            if self._timeout_s and self._waited_s >= self._timeout_s:
                self._time_out()

    def _employ_idle(self, sharing: Sharing) -> None:
        if self._supervisor.most_busy is None:
            sharing.employ_idle(self._plan_one)
            self._note_unsent()

    def _time_out(self) -> NoReturn:
        """torch's `timeout=`: no batch has come from any worker for so long. Whoever asks again may still get it."""
        self._waited_s = 0.0
        error = self._supervisor.timed_out(self._timeout_s)
        self._meant = id(error)
        raise error

    def _take_in(self, happenings: Sequence[Happening]) -> None:
        happened = deque(happenings)
        try:
            while happened:
                self._react_to(happened.popleft())
        finally:
            self._pool.put_back(happened)

    def _react_to(self, happening: Happening) -> None:
        match happening:
            case Heard():
                self._receive(happening)
            case Lost(worker):
                self._times.read(worker)
                if not worker.is_dismissed:
                    self._fail_if(self._supervisor.recover(happening))
            case Gone(worker):
                self._times.read(worker)
                self._orders.confirm_death(worker)
            case StemSaid(stem, Settled(differing)):
                self._supervisor.hedging.note_settled(stem)
                if differing:
                    say_once(tell(differing))
            case StemSaid(stem, Unfit(error)) if stem is self._supervisor.hedging.rescuer:
                self._supervisor.hedging.note_unfit(load_error(error, stem.find))
            case StemSaid(stem, Unfit(error)):
                self._fail_if(functools.partial(load_error, error, stem.find))

    def tear(self, interruption: BaseException) -> None:
        """Something broke in (Ctrl-C, say) where a batch may have got lost: better an error than a gap or a wait for it."""
        is_meant = isinstance(interruption, StopIteration) or id(interruption) == self._meant
        is_safe = self._pool.is_waiting or self._awaits_pinning
        if self.has_failed or is_meant or is_safe or self._pool.is_abandoned:
            return
        text = (
            f"this iterator was interrupted by {interruption!r} while it took in a batch, and cannot go on without a gap. "
            "iter(loader) starts another one"
        )
        self._tear = functools.partial(RuntimeError, text)

    def hand_over(self, fault: Exception) -> InlineEpoch | None:
        """What this has come to by a fault of ours, in the hands of somebody who goes on in this process.

        None: it is no fault of ours, or nobody can go on.
        """
        is_meant = isinstance(fault, StopIteration) or id(fault) == self._meant
        if self._make_bench is None or is_meant or self.has_failed or self._awaits_pinning or self._pool.is_abandoned:
            return None
        if interruptions.is_of_a_handler(fault) or not self._succession.can_be_read_again:
            return None
        with interruptions.held():
            self._end_workers()
            if self._in_hand is not None:
                self._delivery.put_back(self._in_hand)
            estates = {worker.number: self._succession.estate_of(worker) for worker in self._pool.workers}
            whole = {number: estate for number, estate in estates.items() if estate is not None}
            if len(whole) < len(estates):
                return None
            try:
                return self._go_on_here(self._make_bench(), whole, fault)
            except Exception as why:  # of a dataset that cannot be copied, say: the fault is what is raised
                if interruptions.is_of_a_handler(why):
                    raise
                say_once(f"the rest of this epoch cannot be loaded in this process either: {why}")
                return None

    def _end_workers(self) -> None:
        for heard in self._pool.hear_out(deadline=stop_deadline()):
            if not isinstance(heard.message, Filled | Failed | Emptied | Ended):
                continue
            with contextlib.suppress(Exception):  # it may be the very fault; then the batch is made again
                self._receive(heard)
        self._pool.stop()
        self.read_times()

    def _go_on_here(self, bench: InlineBench, estates: Mapping[WorkerNo, Estate], fault: Exception) -> InlineEpoch:
        why = f"a fault of antifreeze itself: {fault!r}"
        if isinstance(fault, OnlyInProcess):
            why = self._account.stays_here = str(fault)
        self._chronicle.note_in_process(why)
        course = Course(self._plan, self._delivery, self._outcomes, self._losses, self._chronicle)
        return InlineEpoch(
            bench,
            course,
            window=self._window,
            account=self._account,
            misgivings=self.misgivings,
            is_stream=self._is_stream,
            pinner=self._pinner,
            pinning_limit_s=self._pinning_limit_s,
            close=self._arena.close,
            estates=estates,
            in_hand=self._in_hand.ticket.number if self._in_hand else None,
        )

    def _receive(self, heard: Heard) -> None:
        worker, message, descriptors = heard
        if worker.is_dismissed:  # since it said this
            for fd in descriptors:
                os.close(fd)
            return
        if self._sharing is not None and self._is_withdrawn(heard, self._sharing):
            return
        if isinstance(message, Filled):
            outcome: Outcome = self._outcomes.of_batch(message, heard)
            if self._pinner is not None and self._delivery.is_expected(message.ticket):
                outcome = self._outcomes.pin(outcome, self._pinner)
            if message.made_bytes:
                self._fit_window(message.made_bytes)
        elif isinstance(message, Failed):
            self._orders.take_back(worker, message.ticket)
            outcome = Raised(message.error, worker.stem.find, message.position, worker.known_pid)
        elif isinstance(message, Emptied):
            self._orders.take_back(worker, message.ticket)
            self._chronicle.note(
                Kind.BATCH_SKIPPED, "nothing is left of it", worker, self._delivery.ticket(message.ticket)
            )
            outcome = Nothing()
        elif isinstance(message, Ended):
            self._orders.take_back(worker, message.ticket)
            outcome = Over()
        elif isinstance(message, Spent):
            self._supervisor.renew(worker, copied_bytes=message.copied_bytes)
            self._note_unsent()  # what was to be done
            return
        elif isinstance(message, Told) and self.marks is not None:
            self.marks.note_told(worker.number, worker.seat, *message)
            return
        else:
            raise InternalError(f"worker {worker.number} said {message!r}")
        if message.mishaps:
            self._note_mishaps(worker, message.ticket, message.mishaps)
        if self.marks is not None and message.mark is not None:
            self.marks.note_answer(worker.seat, message.ticket, message.mark)
        self._waited_s = 0.0
        if not self._supervisor.is_calm:
            self._supervisor.note_done(worker, message.ticket)
        self._arrive(message.ticket, outcome)
        if isinstance(outcome, Over):
            self._note_end(worker, message.ticket)
        if self._supervisor.most_busy is not None:
            self._send_work()  # a worker that has nothing to do makes room for another

    def _is_withdrawn(self, heard: Heard, sharing: Sharing) -> bool:
        """Whether it is about a ticket that another worker has taken over; if so, nothing is left to do about it."""
        worker, message = heard.worker, heard.message
        if isinstance(message, Returned):
            sharing.take_back(worker, message.ticket)
            self._send_work()  # there may be room for it now
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

    def _note_end(self, worker: Worker, ticket: TicketNo) -> None:
        """The stream of a worker has ended: another one gets the ticket that would have been its next."""
        if self._delivery.is_expected(ticket) and self._plan.end(worker.number):
            self._plan_one()
            self._send_work()

    def _note_mishaps(self, worker: Worker, number: TicketNo, mishaps: Sequence[Mishap]) -> None:
        ticket = self._delivery.ticket(number)
        if ticket is None:
            raise InternalError(f"mishaps of ticket {number}, which is not under way")
        self._chronicle.note_mishaps(worker, ticket, mishaps)
        self._losses.note_lost(number, [f"{mishap.sample}: {mishap.exception}" for mishap in mishaps if mishap.is_loss])

    def _arrive(self, ticket: TicketNo, outcome: Outcome) -> None:
        stale = self._delivery.arrive(ticket, outcome)
        if stale is not None:
            self._throw_away(stale)
            self._send_work()

    def _fit_window(self, slot_bytes: int) -> None:
        self._dispatch.fit(self._arena.window)
        window = self._dispatch.window
        if window < self._smallest_window:
            self._smallest_window = window
            what = (
                f"batches of {slot_bytes >> 20} MB: prefetching {window} at a time instead of {self._window}, "
                f"to stay within {self._arena.budget_bytes >> 20} MB of shared memory"
            )
            self._chronicle.note(Kind.WINDOW_SHRUNK, what)
            say_once(what)

    def _throw_away(self, arrival: Arrival[Outcome]) -> None:
        self._outcomes.discard(arrival.outcome)
        self._dispatch.done()

    def _fail_if(self, failure: Failure | None) -> None:
        """Work is lost with no way to get it done: nothing that would come after it is given out."""
        if failure is not None:
            self._fail(failure)
        self._note_unsent()  # what was to be done again

    def _fail(self, failure: Failure) -> NoReturn:
        self._failure = failure
        self._pool.stop()
        raise failure()
