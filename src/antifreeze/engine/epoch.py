"""The path of a batch, from the trainer's point of view: plan → dispatch → send → … → deliver → release. Start here.

An `Epoch` serves one iterator: one pass over the data, or several when its workers are kept. All of it happens inside
`next_batch()`, in the thread that calls it; there is no other thread and no queue. What becomes of workers that are lost
or stuck is the supervisor's business.
"""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from antifreeze.engine import wording
from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.layout import Parcel
from antifreeze.engine.arena.views import read_letter
from antifreeze.engine.backends import interruptions
from antifreeze.engine.chronicle import Chronicle, Failure
from antifreeze.engine.crossing import results
from antifreeze.engine.crossing.raised import load_error
from antifreeze.engine.flow.delivery import Arrival, Delivery
from antifreeze.engine.flow.dispatch import Dispatch
from antifreeze.engine.flow.mishap import Losses
from antifreeze.engine.numbers import SlotNo, TicketNo
from antifreeze.engine.orders import Orders
from antifreeze.engine.plan.ticket import Plan, Ticket
from antifreeze.engine.pool.pool import Gone, Happening, Heard, Lost, Pool, StemSaid
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.supervise.recovery import Recovery
from antifreeze.engine.supervise.watchdog import Watchdog
from antifreeze.engine.supervisor import Rescue, Supervisor
from antifreeze.engine.times import Times
from antifreeze.engine.wire.messages import Emptied, Failed, Filled, Mishap, Settled, Unfit
from antifreeze.engine.witness import Witness
from antifreeze.errors import InternalError, SampleFailed
from antifreeze.observe.accounts import Account
from antifreeze.observe.ledger import Kind
from antifreeze.observe.say import say_once
from antifreeze.settings import Options

# The wait is cut into slices of this length; a death or a message ends it at once.
SLICE_S = 1.0
# So many messages of one worker find room in its channel, whatever their size, while nobody listens.
MOST_UNHEARD = 16
SHUT_DOWN = "the workers of this iterator have been shut down. iter(loader) starts others"


class Full(NamedTuple):
    """A batch that waits in a slot, and all that it takes to open it, whatever becomes of its worker."""

    slot: SlotNo
    parcel: Parcel
    form: Form | None
    find: results.Find


class Letter(NamedTuple):
    """A batch so small that it came in the message."""

    body: bytearray
    parcel: Parcel
    form: Form | None
    find: results.Find


class Raised(NamedTuple):
    """There is no batch: the user's code raised."""

    error: bytes
    find: results.Find
    position: int
    """Of the sample that it was; -1: no sample of its own."""
    pid: int | None


class Unsent(NamedTuple):
    """A ticket that could not be sent to its worker."""

    error: Exception


class Nothing(NamedTuple):
    """There is no batch: all of its samples were left out, as the user wants it."""


Outcome = Full | Letter | Raised | Unsent | Nothing


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
    ) -> None:
        self._pool = pool
        self._arena = arena
        self._plan = Plan(workers=workers)
        self._dispatch = Dispatch(window=window)
        self._delivery: Delivery[Outcome] = Delivery()
        self._orders = Orders(pool, arena)
        self._orders.quarantined = account.quarantined
        watchdog = Watchdog(
            stall_after_s=options.stall_after_s,
            one_blocked_s=options.one_blocked_s,
            all_blocked_s=options.all_blocked_s,
        )
        self._chronicle = Chronicle(account.ledger, watchdog, witness)
        self._supervisor = Supervisor(
            pool,
            self._orders,
            self._delivery,
            recovery=Recovery(workers=workers),
            watchdog=watchdog,
            witness=witness,
            chronicle=self._chronicle,
            rescue=rescue,
            hedges=options.hedge,
            quarantines=options.policy.then != "raise",
        )
        self._times = Times(account.tally)
        account.sources.add(self)
        self._is_strict = options.policy.is_strict
        self._losses = Losses(options.policy.max_lost)
        self._lost: dict[TicketNo, list[Mishap]] = {}
        """Samples that were left out or replaced, by tickets that have not been delivered yet."""
        self._window = self._smallest_window = window
        self._can_wait_for_one = window <= MOST_UNHEARD * workers
        self._timeout_s = timeout_s
        """torch's own `timeout=`; 0: none."""
        self._waited_s = 0.0
        """How long no batch has come while one was waited for."""
        self._failure: Failure | None = None
        self._tear: Failure | None = None
        self._meant = 0
        """The `id` of the error that was last raised on purpose; not the error, whose traceback would hold this epoch."""

    @property
    def has_failed(self) -> bool:
        """Whether this epoch, and any that would follow it, can give no more batches."""
        return self._failure is not None or self._tear is not None or self._pool.is_stopped

    def begin(self, next_index: Callable[[], Any]) -> None:
        """Start a pass over the data: plan as many batches ahead as torch would, and have them made."""
        for arrival in self._delivery.break_off():
            self._throw_away(arrival)
        self._losses.begin()
        self._lost.clear()
        self._plan.begin(next_index)
        for _ in range(self._window):
            self._plan_one()
        self._send_work()

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
        while True:
            while not self._delivery.has_next():
                if self._failure is not None:
                    raise self._failure()
                ticket = self._delivery.next_ticket()
                if ticket is not None and self._pool.is_stopped:
                    raise RuntimeError(SHUT_DOWN)
                if ticket is None:
                    self._end_pass()
                    raise StopIteration
                self._hear_from(ticket)
            self._plan_one()  # before the batch is taken: an error of the sampler must not cost it
            arrival = self._delivery.take()
            self._dispatch.done()
            if self._arena.has_free:  # not to keep the worker waiting; else the slot of this batch may become free
                self._send_work()
            batch, error = self._open(arrival)
            self._send_work()
            if not self._is_strict:
                self._count_losses(arrival.ticket)
            if error is not None:
                self._meant = id(error)
                raise error
            if type(arrival.outcome) is not Nothing:
                return batch

    def close(self) -> None:
        """End the workers, and let go of the shared memory."""
        if self._failure is None and self._delivery.next_ticket() is not None:
            self._failure = functools.partial(RuntimeError, SHUT_DOWN)
        self._delivery.break_off()
        self._pool.stop()
        self.read_times()
        self._arena.close()

    def read_times(self) -> None:
        """Add what workers have spent so far to the loader's tally."""
        for worker in (*self._pool.workers, *self._pool.hedges.values()):
            self._times.read(worker)

    def _plan_one(self) -> None:
        try:
            ticket = self._plan.draw()
        except Exception as error:  # of the sampler, unless a signal came while it was asked
            if not interruptions.is_of_a_handler(error):
                self._meant = id(error)
            raise
        if ticket is not None:
            self._delivery.expect(ticket)
            self._dispatch.add(ticket)

    def _send_work(self) -> None:
        while (self._supervisor.most_busy is None or self._may_send()) and (
            ticket := self._dispatch.next_to_send()
        ) is not None:
            self._orders.give(ticket)
        if self._orders.unsent:
            self._note_unsent()

    def _may_send(self) -> bool:
        """Whether the worker that comes next may be at work beside those that are."""
        ticket = self._dispatch.peek()
        if ticket is None or self._supervisor.most_busy is None:
            return True
        is_at_work = bool(self._pool.workers[ticket.worker].leases)
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
        began = time.monotonic()
        slice_s = min(SLICE_S, self._timeout_s - self._waited_s) if self._timeout_s else SLICE_S
        self._take_in(self._pool.wait(worker if only_one else None, deadline=began + slice_s))
        if time.monotonic() - began >= slice_s:
            self._take_in(self._pool.wait(None, deadline=began))  # what others have said meanwhile
            # A suspended machine, or a stopped trainer, must not count for more than the slice that it was.
            self._fail_if(self._supervisor.look(passed_s=slice_s))
            self._waited_s += slice_s
            if self._timeout_s and self._waited_s >= self._timeout_s:
                self._time_out()

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
            case StemSaid(_, Settled(differing)):
                for difference in differing:
                    say_once(f"{difference}; workers of a clean stem start from a fresh import (use fork to keep it)")
            case StemSaid(stem, Unfit(error)) if stem is self._supervisor.rescuer:
                self._supervisor.note_unfit(load_error(error, stem.find))
            case StemSaid(stem, Unfit(error)):
                self._fail_if(functools.partial(load_error, error, stem.find))

    def tear(self, interruption: BaseException) -> None:
        """Something broke in (Ctrl-C, say) where a batch may have got lost: better an error than a gap or a wait for it."""
        is_meant = isinstance(interruption, StopIteration) or id(interruption) == self._meant
        if self.has_failed or is_meant or self._pool.is_waiting or self._pool.is_abandoned:
            return
        text = (
            f"this iterator was interrupted by {interruption!r} while it took in a batch, and cannot go on without a gap. "
            "iter(loader) starts another one"
        )
        self._tear = functools.partial(RuntimeError, text)

    def _receive(self, heard: Heard) -> None:
        worker, message, descriptors = heard
        if worker.is_dismissed:  # since it said this
            for fd in descriptors:
                os.close(fd)
            return
        if isinstance(message, Filled):
            outcome: Outcome = self._take_batch(message, heard)
        elif isinstance(message, Failed):
            self._orders.take_back(worker, message.ticket)
            outcome = Raised(message.error, worker.stem.find, message.position, worker.known_pid)
        elif isinstance(message, Emptied):
            self._orders.take_back(worker, message.ticket)
            self._chronicle.note(
                Kind.BATCH_SKIPPED, "nothing is left of it", worker, self._delivery.ticket(message.ticket)
            )
            outcome = Nothing()
        else:
            raise InternalError(f"worker {worker.number} said {message!r}")
        if message.mishaps:
            self._note_mishaps(worker, message.ticket, message.mishaps)
        self._waited_s = 0.0
        if not self._supervisor.is_calm:
            self._supervisor.note_done(worker, message.ticket)
        self._arrive(message.ticket, outcome)
        if self._supervisor.most_busy is not None:
            self._send_work()  # a worker that has nothing to do makes room for another

    def _note_mishaps(self, worker: Worker, number: TicketNo, mishaps: Sequence[Mishap]) -> None:
        ticket = self._delivery.ticket(number)
        if ticket is None:
            raise InternalError(f"mishaps of ticket {number}, which is not under way")
        self._chronicle.note_mishaps(worker, ticket, mishaps)
        self._lost[number] = [mishap for mishap in mishaps if mishap.is_loss]

    def _count_losses(self, ticket: Ticket) -> None:
        """Nobody shall train on a part of the data without noticing."""
        samples = len(ticket.index) if isinstance(ticket.index, list | tuple) else 1
        lost = self._lost.pop(ticket.number, [])
        self._losses.note(delivered=samples - len(lost), lost=len(lost))
        if lost and self._losses.judge():
            last = f"{lost[-1].sample}: {lost[-1].exception}"
            self._fail(functools.partial(self._losses.error, last=last))

    def _end_pass(self) -> None:
        if not self._is_strict and self._losses.judge(at_end=True):
            self._fail(self._losses.error)

    def _arrive(self, ticket: TicketNo, outcome: Outcome) -> None:
        stale = self._delivery.arrive(ticket, outcome)
        if stale is not None:
            self._throw_away(stale)
            self._send_work()

    def _take_batch(self, message: Filled, heard: Heard) -> Full | Letter:
        ticket, parcel, definition, body, made_bytes = message[:5]
        worker = heard.worker
        leased = worker.leases.pop(ticket)
        form = self._arena.form_of(worker.seat, parcel.form, definition)
        find = worker.stem.find
        if body is not None:
            self._arena.pass_over(leased, worker.seat)
            return Letter(body, parcel, form, find)
        if made_bytes:
            slot = self._arena.adopt(heard.descriptors[0], made_bytes, worker.seat, instead_of=leased)
            self._fit_window(made_bytes)
            return Full(slot, parcel, form, find)
        if leased is None:
            raise InternalError(f"ticket {ticket} was filled into a slot that it did not have")
        self._arena.fill(leased, worker.seat)
        return Full(leased, parcel, form, find)

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
        if isinstance(arrival.outcome, Full):
            self._arena.discard(arrival.outcome.slot)
        self._dispatch.done()

    def _open(self, arrival: Arrival[Outcome]) -> tuple[Any, Exception | None]:
        """The batch, or the error to raise in its place."""
        ticket, outcome = arrival
        pid: int | None = None
        position = -1
        match outcome:
            case Letter() | Full():
                try:
                    return (read_letter(*outcome) if isinstance(outcome, Letter) else self._arena.open(*outcome)), None
                except Exception as why:  # of a user's class, when it is rebuilt: this batch is lost, the next is not
                    if interruptions.is_of_a_handler(why):
                        raise
                    error, pid = why, self._pool.workers[ticket.worker].known_pid
            case Raised(raw, find, position, pid):
                error = load_error(raw, find)
            case Unsent(error):
                pid = self._pool.workers[ticket.worker].known_pid
            case Nothing():
                return None, None
        if isinstance(error, StopIteration):  # raised as it is, it would end the epoch, and nobody would know
            error = SampleFailed("the dataset raised StopIteration for a sample", why=str(error))
        error.add_note(f"antifreeze: worker {ticket.worker} (pid {pid}), {wording.whereabouts(ticket, position)}")
        self._chronicle.note_raised(error, ticket, position, pid)
        return None, error

    def _fail_if(self, failure: Failure | None) -> None:
        """Work is lost with no way to get it done: nothing that would come after it is given out."""
        if failure is not None:
            self._fail(failure)
        self._note_unsent()  # what was to be done again

    def _fail(self, failure: Failure) -> NoReturn:
        self._failure = failure
        self._pool.stop()
        raise failure()
