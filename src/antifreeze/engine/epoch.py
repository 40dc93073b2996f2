"""The path of a batch, from the trainer's point of view: plan → dispatch → send → … → deliver → release. Start here.

An `Epoch` serves one iterator: one pass over the data, or several when its workers are kept. All of it happens inside
`next_batch()`, in the thread that calls it; there is no other thread and no queue.
"""

from __future__ import annotations

import functools
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from torch._utils import ExceptionWrapper

from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.arena.board import Pulse, Snapshot, Step
from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.layout import Parcel
from antifreeze.engine.arena.views import read_letter
from antifreeze.engine.crossing import results
from antifreeze.engine.flow.delivery import Arrival, Delivery
from antifreeze.engine.flow.dispatch import Dispatch
from antifreeze.engine.flow.history import History
from antifreeze.engine.numbers import SlotNo, TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Plan, Ticket
from antifreeze.engine.pool.pool import Heard, Lost, Pool, StemSaid
from antifreeze.engine.supervise.recovery import Recovery, Verdict
from antifreeze.engine.wire.messages import Failed, Filled, Resume, Settled, Unfit, Work
from antifreeze.errors import InternalError, SampleFailed, WorkerCrashed, WorkerKilled, WorkerLost
from antifreeze.observe.say import say_once

# The wait is cut into slices of this length; a death or a message ends it at once.
SLICE_S = 1.0
# So many messages of one worker find room in its channel, whatever their size, while nobody listens.
MOST_UNHEARD = 16
# Once in so many tickets a worker's history is looked at, and what is safe is forgotten.
LOOK_EVERY = 16
_OWN_FAULT = {
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
}


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


class Unsent(NamedTuple):
    """A ticket that could not be sent to its worker."""

    error: Exception


Outcome = Full | Letter | Failed | Unsent


class Epoch:
    """Moves tickets out and batches back."""

    def __init__(self, pool: Pool, arena: Arena, *, workers: int, window: int) -> None:
        self._pool = pool
        self._arena = arena
        self._plan = Plan(workers=workers)
        self._dispatch = Dispatch(window=window)
        self._delivery: Delivery[Outcome] = Delivery()
        self._leases: dict[TicketNo, SlotNo | None] = {}
        self._history = History()
        self._snapshots: dict[WorkerNo, Snapshot] = {}
        """Of workers that are gone: what the next of their number began with."""
        self._recovery = Recovery(workers=workers)
        self._window = window
        self._can_wait_for_one = window <= MOST_UNHEARD * workers
        self._failure: Callable[[], Exception] | None = None

    @property
    def has_failed(self) -> bool:
        """Whether this epoch, and any that would follow it, can give no more batches."""
        return self._failure is not None

    def begin(self, next_index: Callable[[], Any]) -> None:
        """Start a pass over the data: plan as many batches ahead as torch would, and have them made."""
        for arrival in self._delivery.break_off():
            self._throw_away(arrival)
        self._plan.begin(next_index)
        for _ in range(self._window):
            self._plan_one()
        self._send_work()

    def next_batch(self) -> Any:
        """The next batch in plan order, or what the user's code raised in its place; StopIteration at the end."""
        if self._pool.is_abandoned:
            raise RuntimeError("this iterator belongs to the process that made it; its workers do not hear this one")
        while not self._delivery.has_next():
            if self._failure is not None:
                raise self._failure()
            ticket = self._delivery.next_ticket()
            if ticket is None:
                raise StopIteration
            self._hear_from(ticket)
        self._plan_one()  # before the batch is taken: an error of the sampler must not cost it
        try:
            arrival = self._delivery.take()
            self._dispatch.done()
            if self._arena.has_free:  # not to keep the worker waiting; else the slot of this batch may become free
                self._send_work()
            batch, error = self._open(arrival)
            self._send_work()
        except BaseException as interruption:
            self._tear(interruption)
            raise
        if error is not None:
            raise error
        return batch

    def close(self) -> None:
        """End the workers, and let go of the shared memory."""
        if self._failure is None and self._delivery.next_ticket() is not None:
            self._failure = functools.partial(RuntimeError, "the workers of this iterator have been shut down")
        self._delivery.break_off()
        self._pool.stop()
        self._arena.close()

    def _plan_one(self) -> None:
        ticket = self._plan.draw()
        if ticket is not None:
            self._delivery.expect(ticket)
            self._dispatch.add(ticket)

    def _send_work(self) -> None:
        while (ticket := self._dispatch.next_to_send()) is not None:
            if self._send(ticket) and self._history.note_sent(ticket) % LOOK_EVERY == 0:
                self._forget_what_is_safe(ticket.worker)

    def _send(self, ticket: Ticket) -> bool:
        lease = self._arena.lease(ticket.worker)
        self._leases[ticket.number] = lease.slot
        work = Work(ticket.number, ticket.index, lease.slot, lease.size, lease.forget)
        try:
            self._pool.send(ticket.worker, work, () if lease.descriptor is None else (lease.descriptor,))
        except Exception as error:  # an index that cannot be pickled, or no descriptor left: raised in its turn
            del self._leases[ticket.number]
            self._arena.undo(lease, ticket.worker)
            self._arrive(ticket.number, Unsent(error))
            return False
        return True

    def _forget_what_is_safe(self, worker: WorkerNo) -> None:
        """What was done before the last snapshot will not have to be done again."""
        number = self._pool.workers[worker].board.latest_ticket()
        if number is not None:
            self._history.forget_before(worker, number)

    def _hear_from(self, expected: Ticket) -> None:
        """Take in whatever has arrived, waiting for it if need be."""
        try:
            heard = self._pool.try_receive(expected.worker)
            if heard is not None:
                self._receive(heard)
                return
            # One that has not been sent waits for room, which any worker can make.
            awaited = expected.worker if self._can_wait_for_one and expected.number in self._leases else None
            happened = deque(self._pool.wait(awaited, deadline=time.monotonic() + SLICE_S))
            try:
                while happened:
                    self._react_to(happened.popleft())
            finally:
                self._pool.put_back(happened)
        except BaseException as interruption:
            self._tear(interruption)
            raise

    def _react_to(self, happening: Heard | Lost | StemSaid) -> None:
        match happening:
            case Heard():
                self._receive(happening)
            case Lost():
                self._recover(happening)
            case StemSaid(Settled(differing)):
                for difference in differing:
                    say_once(f"{difference}; workers of a clean stem start from a fresh import (use fork to keep it)")
            case StemSaid(Unfit(error)):
                self._fail(functools.partial(self._load_error, error))

    def _tear(self, interruption: BaseException) -> None:
        """Something broke in (Ctrl-C, say) where a message may have got lost: better an error than a wait for it."""
        if self._failure is None and not self._pool.is_waiting:
            text = f"this iterator was interrupted by {interruption!r} while it took in a batch, and cannot go on"
            self._failure = functools.partial(RuntimeError, text)

    def _receive(self, heard: Heard) -> None:
        message = heard.message
        if isinstance(message, Filled):
            outcome: Outcome = self._take_batch(message, heard)
        elif isinstance(message, Failed):
            self._take_back(message.ticket)
            outcome = message
        else:
            raise InternalError(f"worker {heard.worker} said {message!r}")
        self._recovery.note_done(message.ticket)
        self._arrive(message.ticket, outcome)

    def _take_back(self, ticket: TicketNo) -> None:
        """Nothing has been put into the slot of this ticket."""
        leased = self._leases.pop(ticket)
        if leased is not None:
            self._arena.hand_back(leased)

    def _arrive(self, ticket: TicketNo, outcome: Outcome) -> None:
        stale = self._delivery.arrive(ticket, outcome)
        if stale is not None:
            self._throw_away(stale)
            self._send_work()

    def _take_batch(self, message: Filled, heard: Heard) -> Full | Letter:
        ticket, parcel, definition, body, made_bytes = message
        leased = self._leases.pop(ticket)
        form = self._arena.form_of(heard.worker, parcel.form, definition)
        find = self._pool.workers[heard.worker].stem.find
        if body is not None:
            self._arena.pass_over(leased, heard.worker)
            return Letter(body, parcel, form, find)
        if made_bytes:
            slot = self._arena.adopt(heard.descriptors[0], made_bytes, heard.worker, instead_of=leased)
            self._fit_window(made_bytes)
            return Full(slot, parcel, form, find)
        if leased is None:
            raise InternalError(f"ticket {ticket} was filled into a slot that it did not have")
        self._arena.fill(leased, heard.worker)
        return Full(leased, parcel, form, find)

    def _fit_window(self, slot_bytes: int) -> None:
        self._dispatch.fit(self._arena.window)
        if self._arena.window < self._window:
            say_once(
                f"batches of {slot_bytes >> 20} MB: prefetching {self._dispatch.window} at a time instead of "
                f"{self._window}, to stay within {self._arena.budget_bytes >> 20} MB of shared memory"
            )

    def _throw_away(self, arrival: Arrival[Outcome]) -> None:
        if isinstance(arrival.outcome, Full):
            self._arena.discard(arrival.outcome.slot)
        self._dispatch.done()

    def _open(self, arrival: Arrival[Outcome]) -> tuple[Any, Exception | None]:
        """The batch, or the error to raise in its place."""
        ticket, outcome = arrival.ticket, arrival.outcome
        if isinstance(outcome, Full | Letter):
            try:
                if isinstance(outcome, Letter):
                    return read_letter(*outcome), None
                return self._arena.open(*outcome), None
            except Exception as why:  # of a user's class, when it is rebuilt: this batch is lost, the next is not
                error = why
        else:
            error = outcome.error if isinstance(outcome, Unsent) else self._load_error(outcome.error)
        if isinstance(error, StopIteration):  # raised as it is, it would end the epoch, and nobody would know
            error = SampleFailed("the dataset raised StopIteration for a sample", why=str(error))
        pid = self._pool.workers[ticket.worker].known_pid
        error.add_note(f"antifreeze: worker {ticket.worker} (pid {pid}), batch {ticket.batch}, {_indices(ticket)}")
        return None, error

    def _load_error(self, raw: bytes) -> Exception:
        try:
            error = results.load(raw, self._pool.stem.find)
        except Exception as why:  # of a user's exception class: whatever it does when it is rebuilt
            return SampleFailed("a worker raised an exception that could not be rebuilt here", why=repr(why))
        return _unwrap(error) if isinstance(error, ExceptionWrapper) else error

    def _recover(self, lost: Lost) -> None:
        """Have another worker do what this one has not done, from where its generators were; or give up, and say why."""
        board = self._pool.workers[lost.worker].board
        pulse = board.read_pulse()
        snapshot = board.latest() or self._snapshots.get(lost.worker)
        undone = [ticket for ticket in self._delivery.outstanding() if ticket.worker == lost.worker]
        verdict = self._recovery.judge(lost.worker, _suspected(pulse, undone))
        for ticket in undone:
            slot = self._leases.pop(ticket.number, None)
            if slot is not None:
                self._arena.lose_writer(slot)
                self._arena.confirm_death(slot)  # which a process's end is
        self._arena.forget_worker(lost.worker)
        if verdict is not Verdict.REPLACE:
            self._fail(self._loss(lost, pulse, verdict))
        say_once(f"{_what(lost)} antifreeze: {_place(pulse, undone)}; another worker does its work again")
        self._pool.replace(lost.worker)
        if snapshot is not None:
            self._snapshots[lost.worker] = snapshot
            self._history.forget_before(lost.worker, snapshot.ticket)
            self._pool.send(lost.worker, Resume(snapshot.state))
        numbers = {ticket.number for ticket in undone}
        for ticket in self._history.of(lost.worker):
            if ticket.number in numbers:
                self._send(ticket)
            else:
                self._pool.send(lost.worker, Work(ticket.number, ticket.index, None, 0, (), is_replay=True))

    def _fail(self, failure: Callable[[], Exception]) -> NoReturn:
        """Work is lost with no way to get it done: nothing that would come after it is given out."""
        self._failure = failure  # not the error itself: with its traceback it would hold this epoch
        self._pool.stop()
        raise failure()

    def _loss(self, lost: Lost, pulse: Pulse, verdict: Verdict) -> Callable[[], WorkerLost]:
        undone = [ticket for ticket in self._delivery.outstanding() if ticket.worker == lost.worker]
        had = next((ticket for ticket in undone if ticket.number == pulse.ticket), None)
        if verdict is Verdict.POISON:
            why = f"{self._recovery.ends_at(lost.worker, pulse)} workers have ended there"
        else:
            why = "workers end faster than anything gets done"
        return functools.partial(
            _kind_of(lost),
            _what(lost),
            where=f"worker {lost.worker}, {_place(pulse, undone)}",
            why=why,
            worker=int(lost.worker),
            pid=lost.pid or -1,
            exitcode=lost.exitcode,
            batch=had.batch if had else None,
        )


def _unwrap(wrapper: ExceptionWrapper) -> Exception:
    """The exception that torch would raise: its type, with torch's message."""
    try:
        wrapper.reraise()
    except Exception as error:  # this is what it is for
        return error.with_traceback(None)
    raise InternalError("torch's ExceptionWrapper did not raise")


def _kind_of(lost: Lost) -> type[WorkerLost]:
    killed = lost.exitcode is not None and lost.exitcode < 0 and -lost.exitcode not in _OWN_FAULT
    return WorkerKilled if killed else WorkerCrashed


def _what(lost: Lost) -> str:
    """torch's own words first: people search for them."""
    if lost.pid is None:
        return f"DataLoader worker {lost.worker} exited unexpectedly: its stem ended before it was born"
    if lost.exitcode is not None and lost.exitcode < 0:
        name = signal.strsignal(-lost.exitcode) or f"signal {-lost.exitcode}"
        return f"DataLoader worker (pid {lost.pid}) is killed by signal: {name}."
    code = "an exit code that nobody could read" if lost.exitcode is None else f"exit code {lost.exitcode}"
    return f"DataLoader worker (pid(s) {lost.pid}) exited unexpectedly with {code}"


def _suspected(pulse: Pulse, undone: Sequence[Ticket]) -> Pulse:
    """What a worker was at, as far as it can be to blame: a ticket that has been done before is not."""
    is_done = pulse.ticket is not None and all(ticket.number != pulse.ticket for ticket in undone)
    return pulse._replace(step=Step.IDLE) if is_done and pulse.step is not Step.STARTING else pulse


def _place(pulse: Pulse, undone: Sequence[Ticket]) -> str:
    """Where a worker was when it ended, in the user's terms."""
    ticket = next((ticket for ticket in undone if ticket.number == pulse.ticket), None)
    match pulse.step:
        case Step.STARTING:
            return "while it was starting"
        case Step.IDLE:
            return "between batches"
        case _ if ticket is None:
            return "at a batch that had been delivered"
        case Step.FETCHING if pulse.position >= 0 and isinstance(ticket.index, list | tuple):
            return f"batch {ticket.batch}, sample {ticket.index[pulse.position]!r}"
        case Step.FETCHING:
            return f"batch {ticket.batch}, {_indices(ticket)}"
        case Step.COLLATING:
            return f"batch {ticket.batch}, while it was collated"
        case _:
            return f"batch {ticket.batch}, while it was written"


def _indices(ticket: Ticket) -> str:
    index = ticket.index
    if not isinstance(index, list | tuple):
        return f"sample {index!r}"
    shown = ", ".join(map(repr, index[:8])) + (", …" if len(index) > 8 else "")
    return f"samples {shown}"
