"""The path of a batch, from the trainer's point of view: plan → dispatch → send → … → deliver → release. Start here.

An `Epoch` serves one iterator: one pass over the data, or several when its workers are kept. All of it happens inside
`next_batch()`, in the thread that calls it; there is no queue, and no other thread but the one that pins batches, if the
user wants that. Tickets go out in `tickets`; what workers say, and what becomes of them, is taken in by `intake`. What is
done about those that are lost or stuck is the supervisor's business.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.backends import interruptions
from antifreeze.engine.backends.process import CannotFork
from antifreeze.engine.backends.start import OnlyInProcess
from antifreeze.engine.chronicle import Failure
from antifreeze.engine.crew import assemble
from antifreeze.engine.flow.delivery import Arrival
from antifreeze.engine.flow.losses import Losses
from antifreeze.engine.flow.whole import what_is_missing
from antifreeze.engine.inline.bench import InlineBench
from antifreeze.engine.inline.epoch import Course, InlineEpoch
from antifreeze.engine.intake import Intake
from antifreeze.engine.intent import Intent
from antifreeze.engine.marks import Marks, Unfinished
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.outcomes import Nothing, Outcome, Over, Pinning, opened_again
from antifreeze.engine.pinning import Limits, Pinner
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.pool.ending import SHUT_DOWN, stop_deadline
from antifreeze.engine.pool.happenings import Heard
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.showing import show, text_of
from antifreeze.engine.succession import Estate
from antifreeze.engine.tickets import Tickets
from antifreeze.engine.times import Times
from antifreeze.engine.wire.messages import Emptied, Ended, Failed, Filled
from antifreeze.engine.witness import Witness
from antifreeze.errors import ArenaError, InternalError
from antifreeze.observe.accounts import Account
from antifreeze.observe.say import say_once
from antifreeze.options import Mode, Options, mode

# The wait is cut into slices of this length; a death or a message ends it at once.
SLICE_S = 1.0
# For so long a batch may keep the trainer waiting before it is called slow, and all others are heard and employed; then
# so many batches are waited for without patience, for where one is slow, others are.
PATIENCE_S, HURRY = 0.001, 64
# So many messages of one worker find room in its channel, whatever their size, while nobody listens.
MOST_UNHEARD = 16


class Epoch:
    """Moves tickets out and batches back."""

    def __init__(
        self,
        pool: Pool,
        arena: Arena,
        *,
        window: int,
        options: Options,
        account: Account,
        witness: Witness,
        timeout_s: float = 0.0,
        in_order: bool = True,
        is_stream: bool = False,
        by_ticket: bool = False,
        is_batched: bool = True,
        pinner: Pinner | None = None,
        make_bench: Callable[[], InlineBench] | None = None,
        marks: Marks | None = None,
    ) -> None:
        """`make_bench`: makes what can go on in this process if a fault of ours ends the workers."""
        self._pool = pool
        self._arena = arena
        self._account = account
        self._pinner = pinner
        self._make_bench = make_bench
        self.marks = marks
        self._is_stream = is_stream
        self._is_shared_out = is_stream or not (in_order or by_ticket)
        """Whether the plan must know what each worker has under way, or has come to the end of."""
        crew = assemble(
            pool,
            arena,
            options=options,
            account=account,
            witness=witness,
            in_order=in_order,
            is_stream=is_stream,
            marks=marks,
        )
        self._delivery = crew.delivery
        self._outcomes = crew.outcomes
        self._succession = crew.succession
        self._supervisor = crew.supervisor
        self._chronicle = crew.chronicle
        self.misgivings = crew.misgivings
        self._times = Times(account.tally)
        account.sources.add(self)
        self._is_strict = options.policy.is_strict
        self._losses = Losses(options.policy.max_lost)
        self._intent = Intent()
        self._tickets = Tickets(
            pool,
            arena,
            crew,
            self._intent,
            window=window,
            in_order=in_order,
            is_stream=is_stream,
            by_ticket=by_ticket,
            is_batched=is_batched,
            marks=marks,
        )
        self._intake = Intake(
            pool, arena, crew, self._tickets, losses=self._losses, times=self._times, pinner=pinner, marks=marks
        )
        self._can_wait_for_one = in_order and pinner is None and window <= MOST_UNHEARD * len(pool.workers)
        self._awaited: TicketNo | None = None
        self._hurry = 0
        """For so many batches the trainer has no patience."""
        self._timeout_s = timeout_s
        """torch's own `timeout=`; 0: none."""
        self._pinning_limits = Limits(timeout_s, options.all_blocked_s)
        self._watch_s, self._stall_after_s = options.watch_s, options.stall_after_s
        self._awaits_pinning = False
        self._tear: Failure | None = None
        self._is_whole = False
        """Whether all of this pass has been delivered."""
        self._in_hand: Arrival[Outcome] | None = None
        """What was taken, and has not reached the user by a fault of ours."""

    @property
    def has_failed(self) -> bool:
        """Whether this epoch, and any that would follow it, can give no more batches."""
        return self._intake.failure is not None or self._tear is not None or self._pool.is_stopped

    @property
    def is_torn(self) -> bool:
        """Whether an interruption has cost the user what was about to be delivered."""
        return self._tear is not None

    @property
    def can_listen(self) -> bool:
        """Whether who interrupts `next_batch` may hear workers: nothing is in the middle of being taken in."""
        return self._pool.is_waiting or self._awaits_pinning

    @property
    def is_abandoned(self) -> bool:
        """Whether this is a child of the trainer, whose workers these are not."""
        return self._pool.is_abandoned

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
        self._intent.forget()
        self._is_whole = False
        self._losses.begin()
        self._tickets.begin(next_index, is_first=is_first, shared_seed=shared_seed, seed=seed, unfinished=unfinished)

    def next_batch(self) -> Any:
        """The next batch in plan order, or what the user's code raised in its place; StopIteration at the end."""
        if self._pool.is_abandoned:
            raise RuntimeError(
                "this iterator belongs to the process that made it; its workers do not hear this one. Make one here: "
                "iter(loader)"
            )
        if self._tear is not None:  # also if later batches are there: an earlier one may be lost
            raise self._tear()
        self._intent.forget()
        self._awaits_pinning = self._pool.is_waiting = False
        if self._pinner is not None and not self._pool.is_stopped:
            self._take_in_what_has_come()
        while True:
            while not self._delivery.has_next():
                if self._intake.failure is not None:
                    raise self._intake.failure()
                ticket = self._delivery.next_ticket()
                if ticket is not None and self._pool.is_stopped:
                    raise RuntimeError(SHUT_DOWN)
                if ticket is None:
                    self._check_whole()
                    if not self._is_strict and self._losses.judge(at_end=True):
                        self._intake.fail(self._losses.error)
                    raise StopIteration
                self._hear_from(ticket)
            if self._is_shared_out and self._passes_over():
                continue
            if self._pinner is not None:
                self._await_pinning(self._pinner)
            if not self._tickets.dispatch.narrow():
                self._tickets.plan_one()  # before the batch is taken: an error of the sampler must not cost it
            arrival = self._delivery.take()
            if self.marks is not None:
                self.marks.note_delivered(arrival.ticket)
            self._tickets.dispatch.done()
            opened = None
            try:
                if self._arena.has_free:  # not to keep the worker waiting; else the slot of this batch may become free
                    self._tickets.send()
                opened = self._outcomes.open(arrival)
                self._tickets.send()
            except Exception:
                self._in_hand = arrival if opened is None else opened_again(arrival, *opened)
                raise
            batch, error = opened
            if not self._is_strict and self._losses.note_delivered(arrival.ticket):
                self._intake.fail(self._losses.error)
            if error is not None:
                raise self._intent.raising(error)
            if type(arrival.outcome) is not Nothing:
                return batch

    def _check_whole(self) -> None:
        """Raise if this pass ends before all of it has been delivered."""
        missing = None if self._is_whole else what_is_missing(self._tickets.plan, self._delivery)
        if missing is not None:
            error = InternalError("this pass over the data would end too early", why=missing)
            raise self._intent.raising(error) if mode() is Mode.REQUIRE else error
        self._is_whole = True

    def is_fault(self, error: Exception) -> bool:
        """Whether what `begin` has raised is neither of the sampler nor of a signal handler."""
        return not (self._intent.is_meant(error) or self.has_failed or interruptions.is_from_outside(error))

    def _passes_over(self) -> bool:
        """Whether what comes next is no batch but the end of a worker's stream; if it is one, its worker has room again."""
        arrival = self._delivery.peek()
        if isinstance(arrival.outcome, Over):
            self._delivery.take()
            if self.marks is not None:
                self.marks.note_end(arrival.ticket)
            self._tickets.dispatch.done()
            self._tickets.send()
            return True
        self._tickets.plan.done(arrival.ticket)
        return False

    def _take_in_what_has_come(self) -> None:
        """For it is pinned beside the user's step."""
        try:
            self._intake.take_in(self._pool.wait(None, deadline=0.0))
        except Exception as error:  # a failure is kept, and raised behind the batches that came before it
            if self._intake.failure is None or interruptions.is_of_a_handler(error):
                raise

    def _await_pinning(self, pinner: Pinner) -> None:
        ticket, outcome = self._delivery.peek()
        if not isinstance(outcome, Pinning):
            return
        self._awaits_pinning = True  # an interrupt in here loses nothing
        pinner.await_pinned(outcome.pinned, batch=ticket.batch, limits=self._pinning_limits)
        self._awaits_pinning = False

    def ask_to_stop(self) -> None:
        """Have `next_batch`, if another thread is in it, come to an end soon; any thread may call this."""
        self._pool.ask_to_stop()

    def close(self) -> None:
        """End the workers, and let go of the shared memory."""
        self._is_whole = self._is_whole or what_is_missing(self._tickets.plan, self._delivery) is None
        if self._intake.failure is None and not self._is_whole:
            self._intake.failure = functools.partial(RuntimeError, SHUT_DOWN)
        # All of these are done, whatever one of them raises, the last one first.
        with contextlib.ExitStack() as last:
            last.callback(self._arena.close)
            last.callback(self.read_times)
            if self._pinner is not None:
                last.callback(self._pinner.close)
            last.callback(self._pool.stop)
            self._delivery.break_off()

    def read_times(self) -> None:
        """Add what workers have spent so far to the loader's tally."""
        for worker in (*self._pool.workers, *self._pool.hedges.values()):
            self._times.read(worker)

    def _hear_from(self, expected: Ticket) -> None:
        """Take in whatever has arrived, waiting for it if need be."""
        if self._supervisor.most_busy is not None:
            self._tickets.send()  # whoever had something to do may have nothing now: done, withdrawn, lost or replaced
            if self._delivery.has_next():  # it could not be sent
                return
        worker = self._pool.workers[expected.worker]
        heard = self._pool.try_receive(worker)
        if heard is not None:
            self._intake.receive(heard)
            return
        # One that has not been sent waits for room, which any worker can make; one with a hedge can come from either.
        only_one = self._can_wait_for_one and expected.number in worker.leases and not self._pool.hedges
        sharing = self._tickets.sharing
        if sharing is not None:
            if expected.number != self._awaited:
                self._awaited, self._hurry = expected.number, max(0, self._hurry - 1)
                if only_one and not self._hurry:
                    self._intake.take_in(self._pool.wait(worker, deadline=time.monotonic() + PATIENCE_S))
                    return
            elif not self._hurry:
                self._hurry = HURRY
            only_one = False
            self._tickets.employ_idle(sharing)
        self._listen_to(worker if only_one else None)

    def await_marks(self, *, at_end: bool) -> None:
        """Wait until all workers have said where they are, if they were asked; at the end of a pass, they are."""
        if at_end and self.marks is not None and self.marks.is_behind() and not self._pool.is_stopped:
            self._tickets.ask(self.marks)
        while self.marks is not None and self.marks.unknown and not self._pool.is_stopped:
            self._listen_to(None)

    def _listen_to(self, worker: Worker | None) -> None:
        """Wait for a slice, for one worker or for all of them."""
        began = time.monotonic()
        slice_s = min(SLICE_S, self._timeout_s - self._intake.waited_s) if self._timeout_s else SLICE_S
        self._intake.take_in(self._pool.wait(worker, deadline=began + slice_s))
        if time.monotonic() - began >= slice_s:
            self._intake.take_in(self._pool.wait(None, deadline=began))  # what others have said meanwhile
            # A suspended machine, or a stopped trainer, must not count for more than the slice that it was.
            self._intake.fail_if(self._supervisor.look(passed_s=slice_s))
            self._intake.waited_s += slice_s
            if self._timeout_s and self._intake.waited_s >= self._timeout_s:  # whoever asks again may still get it
                self._intake.waited_s = 0.0
                raise self._intent.raising(self._supervisor.timed_out(self._timeout_s))

    def tear(self, interruption: BaseException) -> None:
        """Something broke in (Ctrl-C, say) where a batch may have got lost: better an error than a gap or a wait for it."""
        is_safe = self._pool.is_waiting or self._awaits_pinning
        if self.has_failed or self._intent.is_meant(interruption) or is_safe or self._pool.is_abandoned:
            return
        text = (
            f"this iterator was interrupted by {show(interruption)} while it took in a batch, and cannot go on without a "
            "gap. iter(loader) starts another one"
        )
        self._tear = functools.partial(RuntimeError, text)

    def hand_over(self, fault: Exception) -> InlineEpoch | None:
        """What this has come to by a fault of ours, in the hands of somebody who goes on in this process.

        None: it is no fault of ours, or nobody can go on.
        """
        if self._make_bench is None or self._intent.is_meant(fault) or self.has_failed:
            return None
        if self._awaits_pinning or self._pool.is_abandoned:
            return None
        if interruptions.is_from_outside(fault) or not self._succession.can_be_read_again:
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
                say_once(f"the rest of this epoch cannot be loaded in this process either: {text_of(why)}")
                return None

    def _end_workers(self) -> None:
        try:
            self._pool.hear_out(self._take_last, deadline=stop_deadline())
        finally:
            self._pool.stop()
        self.read_times()

    def _take_last(self, heard: Heard) -> None:
        if isinstance(heard.message, Filled | Failed | Emptied | Ended):
            with contextlib.suppress(Exception):  # it may be the very fault; then the batch is made again
                self._intake.receive(heard)

    def _go_on_here(self, bench: InlineBench, estates: Mapping[WorkerNo, Estate], fault: Exception) -> InlineEpoch:
        why = f"a fault of antifreeze itself: {show(fault)}"
        if isinstance(fault, ArenaError):
            why = ": ".join(part for part in (fault.what, fault.why) if part)
        watch_s = self._watch_s
        if isinstance(fault, OnlyInProcess):
            why = self._account.stays_here = str(fault)
            watch_s = watch_s or self._stall_after_s  # what has stopped two workers may stop the trainer
        elif isinstance(fault, CannotFork):
            why = str(fault)
        self._chronicle.note_in_process(why)
        course = Course(self._tickets.plan, self._delivery, self._outcomes, self._losses, self._chronicle)
        return InlineEpoch(
            bench,
            course,
            window=self._tickets.window,
            account=self._account,
            misgivings=self.misgivings,
            is_stream=self._is_stream,
            pinner=self._pinner,
            pinning_limits=self._pinning_limits,
            close=self._arena.close,
            estates=estates,
            in_hand=self._in_hand.ticket.number if self._in_hand else None,
            watch_s=watch_s,
            stays_here=isinstance(fault, OnlyInProcess),
        )
