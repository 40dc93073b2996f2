"""A pass over the data, or the rest of one, in the trainer's own process: the same plan, order and policies, no workers.

As `Epoch`, to the iterator that asks it for batches. A batch is made when it is asked for; the sampler is as far ahead as
it would be with workers. A sample that hangs hangs the trainer, as without workers; `watch.py` can report it.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.backends import interruptions
from antifreeze.engine.chronicle import Chronicle, Failure
from antifreeze.engine.flow.delivery import Delivery
from antifreeze.engine.flow.history import Pass
from antifreeze.engine.flow.losses import Losses
from antifreeze.engine.flow.whole import what_is_missing
from antifreeze.engine.inline.bench import InlineBench, Part, Refused
from antifreeze.engine.inline.watch import Watch
from antifreeze.engine.intent import Intent
from antifreeze.engine.misgivings import Misgivings
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.outcomes import Broken, Here, Nothing, Outcome, Outcomes, Over, Pinning
from antifreeze.engine.pinning import Limits, Pinner
from antifreeze.engine.plan.ticket import Plan, Ticket
from antifreeze.engine.showing import show
from antifreeze.engine.succession import Estate
from antifreeze.engine.supervise.watchdog import Watchdog
from antifreeze.engine.times import Times
from antifreeze.engine.wire.messages import Begin
from antifreeze.engine.witness import Witness
from antifreeze.engine.worker.lenient import NothingLeft
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.stream import EndOfStream
from antifreeze.errors import InternalError
from antifreeze.observe.accounts import Account
from antifreeze.observe.ledger import Kind
from antifreeze.observe.report import Frame
from antifreeze.options import Options

SHUT_DOWN = "this iterator has been shut down. iter(loader) starts another one"


class Course(NamedTuple):
    """What is to be loaded, and how far that has come."""

    plan: Plan
    delivery: Delivery[Outcome]
    outcomes: Outcomes
    losses: Losses
    chronicle: Chronicle


class InlineEpoch:
    """Has tickets made into batches, here and now."""

    is_abandoned = False
    """A child of the trainer has a copy of it, and can go on with that."""

    def __init__(
        self,
        bench: InlineBench,
        course: Course,
        *,
        window: int,
        account: Account,
        misgivings: Misgivings,
        is_stream: bool,
        pinner: Pinner | None,
        pinning_limits: Limits,
        close: Callable[[], None],
        estates: Mapping[WorkerNo, Estate] | None = None,
        in_hand: TicketNo | None = None,
        watch_s: float | None = None,
        stays_here: bool = True,
    ) -> None:
        """`estates`: what workers have left, for the rest of a pass that they had begun; None: there were no workers.

        `in_hand`: the ticket that was about to be delivered then. The one to follow it has been planned. `stays_here`:
        passes that come after this one are loaded here, too.
        """
        self._in_hand = in_hand
        self._watch_s = watch_s
        self._bench = bench
        self._plan, self._delivery, self._outcomes, self._losses, self._chronicle = course
        self._outcomes.workers = bench.parts
        self._window = window
        self._times = Times(account.tally)
        self.misgivings = misgivings
        self._is_stream = is_stream
        self._pinner = pinner
        self._pinning_limits = pinning_limits
        self._close = close
        self._stays_here = stays_here
        self._failure: Failure | None = None
        self._is_torn_by_interruptions = False
        self._is_whole = False
        """Whether all of this pass has been delivered."""
        self._intent = Intent()
        self._told: dict[WorkerNo, deque[Ticket | Pass]] = {}
        """What workers were told since the state that their parts begin with."""
        for number, estate in (estates or {}).items():
            self._told[number] = deque(estate.told)
            if estate.state is not None:
                bench.resume(number, estate.state)
        self._take_over_stale()
        account.sources.add(self)

    @property
    def has_failed(self) -> bool:
        """Whether another pass needs another iterator: after a failure, and where it is to have workers."""
        return self._failure is not None or not self._stays_here

    def begin(
        self,
        next_index: Callable[[], Any],
        *,
        is_first: bool = True,
        shared_seed: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Start a pass over the data: plan as many batches ahead as torch would."""
        self._break_off()
        self._is_whole = False
        self._losses.begin()
        self._plan.begin(next_index, seed=seed)
        if self._is_stream and not is_first:
            for part in self._bench.parts:
                self._bench.begin_pass(Begin(self._plan.next_number, shared_seed), part.number)
        for _ in range(self._window):
            self._plan_one()

    def _take_over_stale(self) -> None:
        """What is left of a pass that was broken off is drawn in its place, once: before what comes after it."""
        for ticket in self._delivery.outstanding():
            if self._delivery.stale(ticket.number) is not None:
                self._delivery.forget(ticket)
                told = self._told.get(ticket.worker, deque())
                is_known = any(isinstance(each, Ticket) and each.number == ticket.number for each in told)
                if ticket.seed is None and not is_known:  # it waited to be sent
                    told.insert(sum(each.number < ticket.number for each in told), ticket)

    def _break_off(self) -> None:
        """What nobody wants any more is drawn all the same: kept workers would have made it by now."""
        for arrival in self._delivery.break_off():
            self._outcomes.discard(arrival.outcome)
        told = {number for worker in self._told for number in self._catch_up_all(worker)}
        for ticket in self._delivery.outstanding():
            if ticket.seed is None and ticket.number not in told:
                self._bench.replay(ticket)
            self._delivery.forget(ticket)

    def next_batch(self) -> Any:
        """The next batch in plan order, or what the user's code raised in its place; StopIteration at the end."""
        self._intent.forget()
        while True:
            if self._failure is not None:
                raise self._failure()
            ticket = self._delivery.next_ticket()
            if ticket is None:
                if not self._plan.is_exhausted:  # a fault of the workers' epoch, which this one mends
                    self._plan_one()
                    continue
                self._check_whole()
                if self._losses.judge(at_end=True):
                    self._fail(self._losses.error)
                raise StopIteration
            if not self._delivery.has_next():
                self._make(ticket)
            if self._passes_over():
                continue
            self._await_pinning()
            if self._delivery.peek().ticket.number != self._in_hand:
                self._plan_one()  # before the batch is taken: an error of the sampler must not cost it
            arrival = self._delivery.take()
            batch, error = self._outcomes.open(arrival)
            if self._losses.note_delivered(arrival.ticket):
                self._fail(self._losses.error)
            if error is not None:
                raise self._intent.raising(error)
            if type(arrival.outcome) is not Nothing:
                return batch

    def _check_whole(self) -> None:
        """Raise if this pass ends before all of it has been delivered."""
        missing = None if self._is_whole else what_is_missing(self._plan, self._delivery)
        if missing is not None:
            raise self._intent.raising(InternalError("this pass over the data would end too early", why=missing))
        self._is_whole = True

    def is_fault(self, error: Exception) -> bool:
        """Nothing that `begin` raises: it calls the user's code."""
        return False

    def hand_over(self, fault: Exception) -> None:
        """There is nobody left to do it."""

    def tear(self, interruption: BaseException) -> None:
        """Something broke in (Ctrl-C, say) where a batch may have got lost: better an error than a gap."""
        if self._failure is None and not self._intent.is_meant(interruption) and self._is_torn_by_interruptions:
            text = (
                f"this iterator was interrupted by {show(interruption)} while it made a batch, and cannot go on without a "
                "gap. iter(loader) starts another one"
            )
            self._failure = functools.partial(RuntimeError, text)

    def ask_to_stop(self) -> None:
        """Have `next_batch`, if another thread is in it, come to an end after this batch; any thread may call this."""
        if self._failure is None:
            self._failure = functools.partial(RuntimeError, SHUT_DOWN)

    def close(self) -> None:
        """Let go of everything."""
        self._is_whole = self._is_whole or what_is_missing(self._plan, self._delivery) is None
        if self._failure is None and not self._is_whole:
            self._failure = functools.partial(RuntimeError, SHUT_DOWN)
        # All of these are done, whatever one of them raises, the last one first.
        with contextlib.ExitStack() as last:
            last.callback(self._close)
            last.callback(self.read_times)
            if self._pinner is not None:
                last.callback(self._pinner.close)
            self._delivery.break_off()

    def read_times(self) -> None:
        """Add what has been spent so far to the loader's tally."""
        for part in self._bench.parts:
            part.bench.stopwatch.write()
            self._times.read(part)

    def _plan_one(self) -> None:
        self._is_torn_by_interruptions = True  # a ticket that was drawn and is not expected is lost
        try:
            ticket = self._plan.draw()
        except Exception as error:  # of the sampler, unless a signal came while it was asked
            if not interruptions.is_of_a_handler(error):
                self._intent.raising(error)
            raise
        if ticket is not None:
            self._delivery.expect(ticket)

    def _make(self, ticket: Ticket) -> None:
        """The outcome of this ticket, after all that its worker would have done before."""
        self._is_torn_by_interruptions = self._is_stream  # whose next item may be lost; an index can be fetched again
        self._catch_up(ticket)
        part = self._bench.part_of(ticket)
        try:
            with self._watched(part, ticket):
                outcome: Outcome = Here(self._bench.make(ticket))
        except Refused as refused:
            outcome = Broken(refused.error, refused.position)
        except NothingLeft:
            self._chronicle.note(Kind.BATCH_SKIPPED, "nothing is left of it", part, ticket)
            outcome = Nothing()
        except EndOfStream:
            outcome = Over()
        self._is_torn_by_interruptions = True
        if mishaps := self._bench.take_mishaps(part.number):
            self._chronicle.note_mishaps(part, ticket, mishaps)
            lost = [f"{mishap.sample}: {mishap.exception}" for mishap in mishaps if mishap.is_loss]
            self._losses.note_lost(ticket.number, lost)
        if self._pinner is not None:
            outcome = self._outcomes.pin(outcome, self._pinner)
        self._delivery.arrive(ticket.number, outcome)
        if isinstance(outcome, Over) and self._plan.end(ticket.worker):
            self._plan_one()

    def _watched(self, part: Part, ticket: Ticket) -> contextlib.AbstractContextManager[object]:
        if self._watch_s is None:
            return contextlib.nullcontext()

        def tell(seconds: float, frames: Sequence[Frame]) -> None:
            self._chronicle.report_own_stall(ticket, part.board.read_pulse(), seconds, frames)

        return Watch(part.board, self._watch_s, tell)

    def _catch_up(self, ticket: Ticket) -> None:
        """Draw what the worker of this ticket drew for others, which have been delivered or have arrived."""
        told = self._told.get(ticket.worker)
        while told and told[0].number <= ticket.number:
            first = told[0]
            if isinstance(first, Pass):
                self._bench.begin_pass(Begin(*first), ticket.worker)
            elif first.number < ticket.number:
                self._bench.replay(first)
            told.popleft()

    def _catch_up_all(self, worker: WorkerNo) -> Iterator[TicketNo]:
        """Draw all that this worker drew, or would have drawn by now; the numbers of those tickets."""
        told = self._told[worker]
        while told:
            first = told.popleft()
            if isinstance(first, Pass):
                self._bench.begin_pass(Begin(*first), worker)
            elif first.seed is None:
                self._bench.replay(first)
                yield first.number

    def _passes_over(self) -> bool:
        """Whether what comes next is no batch but the end of a worker's stream; if it is one, its worker has room again."""
        arrival = self._delivery.peek()
        if isinstance(arrival.outcome, Over):
            self._delivery.take()
            return True
        self._plan.done(arrival.ticket)
        return False

    def _await_pinning(self) -> None:
        ticket, outcome = self._delivery.peek()
        if self._pinner is None or not isinstance(outcome, Pinning):
            return
        self._is_torn_by_interruptions = False
        try:
            self._pinner.await_pinned(outcome.pinned, batch=ticket.batch, limits=self._pinning_limits)
        except RuntimeError as error:
            self._intent.raising(error)
            raise

    def _fail(self, failure: Failure) -> NoReturn:
        self._failure = failure
        raise failure()


def start_inline(
    recipe: Recipe,
    arena: Arena,
    *,
    window: int,
    options: Options,
    account: Account,
    in_order: bool,
    timeout_s: float,
    pinner: Pinner | None,
) -> InlineEpoch:
    """For a loader that no worker can serve."""
    watchdog = Watchdog(
        stall_after_s=options.stall_after_s, one_blocked_s=options.one_blocked_s, all_blocked_s=options.all_blocked_s
    )
    chronicle = Chronicle(account.ledger, watchdog, Witness(), workers=recipe.num_workers)
    bench = InlineBench(recipe, quarantined=account.quarantined)
    share_out = None if in_order else window
    course = Course(
        Plan(
            workers=recipe.num_workers,
            share_out=share_out,
            is_stream=recipe.is_stream,
            is_batched=recipe.auto_collation,
        ),
        Delivery(in_order=in_order),
        Outcomes(bench.parts, arena, chronicle),
        Losses(options.policy.max_lost),
        chronicle,
    )
    return InlineEpoch(
        bench,
        course,
        window=window,
        account=account,
        misgivings=Misgivings(bench.parts, chronicle, first_items={}, is_stream=recipe.is_stream, fixes=options.fix),
        is_stream=recipe.is_stream,
        pinner=pinner,
        pinning_limits=Limits(timeout_s, options.all_blocked_s),
        close=arena.close,
        watch_s=options.watch_s,
    )
