"""What the trainer does when a worker is lost or stuck: replaces it, has its work done again, or says that it is over.

The decisions are `supervise`'s, the words are the chronicle's; here it is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from antifreeze.engine import wording
from antifreeze.engine.arena.board import Pulse, Snapshot, Step, Timing
from antifreeze.engine.backends import interruptions
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.chronicle import Chronicle, Failure
from antifreeze.engine.flow.delivery import Delivery
from antifreeze.engine.numbers import SeatNo, TicketNo, WorkerNo
from antifreeze.engine.orders import Orders, is_hashable
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.pool.pool import Lost, Pool
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.supervise.recovery import Recovery, Verdict
from antifreeze.engine.supervise.watchdog import State, Watchdog
from antifreeze.engine.witness import Witness
from antifreeze.errors import ArenaError, InternalError
from antifreeze.observe.ledger import Kind
from antifreeze.observe.say import say_once

# Hedges of one ticket: where two of them got stuck as well, a third will not do better.
MOST_HEDGES = 2

Rescue = Callable[[], StemHandle]
"""Makes a stem without the locks and threads of this process."""


class Supervisor:
    """Looks after the workers of one iterator."""

    def __init__(
        self,
        pool: Pool,
        orders: Orders,
        delivery: Delivery[Any],
        *,
        recovery: Recovery,
        watchdog: Watchdog,
        witness: Witness,
        chronicle: Chronicle,
        rescue: Rescue | None,
        hedges: bool,
        quarantines: bool,
    ) -> None:
        self._pool = pool
        self._orders = orders
        self._delivery = delivery
        self._recovery = recovery
        self._watchdog = watchdog
        self._witness = witness
        self._chronicle = chronicle
        self._rescue = rescue
        self._hedges = hedges
        self._quarantines = quarantines
        self._snapshots: dict[WorkerNo, Snapshot] = {}
        """Of workers that are gone: what the next of their number began with."""
        self._reported: dict[SeatNo, Pulse] = {}
        self._hedged: Counter[TicketNo | None] = Counter()
        self.is_calm = True
        """Whether there is nobody to look after: then nobody has to tell what has been done."""
        self.rescuer: StemHandle | None = None
        """The clean stem that workers have been rescued to, if they have."""
        self.most_busy: int | None = None
        """How many workers may be at work at the same time; None: all of them."""

    def note_done(self, worker: Worker, ticket: TicketNo) -> None:
        """This worker has carried out this ticket: of two that were at it, it is the one to keep."""
        self._recovery.note_done(ticket)
        self._watchdog.note_done(worker.seat)
        if self._pool.hedges:
            self._settle_hedge(worker)
        self.is_calm = self._recovery.is_calm and self._watchdog.is_calm and not self._pool.hedges

    def look(self, *, passed_s: float) -> Failure | None:
        """The trainer has waited for so long, and nothing has come: see how the workers are."""
        self.is_calm = False
        self._watchdog.note_waited(passed_s)
        timings = [worker.board.read_timing() for worker in self._pool.workers]
        others_got_on = any(
            timing.batches and not worker.leases for worker, timing in zip(self._pool.workers, timings, strict=True)
        )
        for worker in (*self._pool.workers, *self._pool.hedges.values()):
            self._look_at(worker, passed_s)
            if others_got_on:
                self._watchdog.note_others_got_on(worker.seat)
        for hedge in list(self._pool.hedges.values()):
            if self._is_stuck_elsewhere(hedge, timings):
                # It got past where the first one is stuck: it is the one to keep, and to be helped in its turn.
                self._chronicle.note(Kind.HEDGE_WON, "the second worker got further; the first is stopped", hedge)
                self._dismiss(self._pool.promote_hedge(hedge.number))
        states = {worker: self._judge(worker, timings) for worker in self._pool.workers}
        stuck = [worker for worker, state in states.items() if state is State.STALLED]
        unreported = [worker for worker, state in states.items() if state is not State.FINE and self._is_new(worker)]
        for worker in stuck:
            if self._is_beyond_hope(worker):
                return self._give_up(worker)
        hedged = {worker: self._start_hedge(worker) for worker in stuck if self._can_be_hedged(worker)}
        texts = self._witness.texts_of(unreported)
        for worker in unreported:
            did = hedged.get(worker, "nothing yet: it may still come back")
            if states[worker] is State.SLOW:
                did = "nothing: it is at work, and is left alone"
            self._report(worker, texts, timings, did=did)
        return self._give_up(self._awaited()) if self._watchdog.is_at_a_standstill else None

    def recover(self, lost: Lost) -> Failure | None:
        """Have another worker do what this one has not done, from where its generators were."""
        self.is_calm = False
        worker, number = lost.worker, lost.worker.number
        pulse, undone = worker.board.read_pulse(), self._undone(number)
        ticket = wording.ticket_at(pulse, undone)
        cause = self._witness.cause_of(lost)
        suspected = wording.suspected(pulse, undone)
        if cause.is_oom and self.most_busy != 1:  # with fewer at work at a time, the same sample may find room
            suspected = suspected._replace(step=Step.IDLE)
        verdict = self._recovery.judge(number, suspected)
        self._watchdog.forget(worker.seat)
        self._orders.lose(worker)
        if verdict is Verdict.HOPELESS or (
            verdict is Verdict.POISON and not self._put_into_quarantine(pulse, ticket, f"the worker {cause.what}")
        ):
            return self._chronicle.loss(lost, pulse, ticket, why=self._why(verdict, number, pulse), cause=cause)
        self._chronicle.note_end(lost, pulse, ticket, cause)
        if cause.is_oom:
            self._run_one_fewer()
        if self._pool.hedges.get(number) is worker:
            self._pool.drop_hedge(number)
        elif number in self._pool.hedges:
            self._pool.promote_hedge(number)
        else:
            self._hand_over(worker, lambda: self._pool.replace(number), undone)
            self._orders.confirm_death(worker)
        return None

    def _run_one_fewer(self) -> None:
        """The machine has run out of memory: as many workers at a time would only do it again."""
        most = self.most_busy or len(self._pool.workers)
        if most > 1:
            self.most_busy = most - 1
            self._chronicle.note_one_fewer(self.most_busy)

    def _why(self, verdict: Verdict, number: WorkerNo, pulse: Pulse) -> str:
        if verdict is Verdict.POISON:
            return f"{self._recovery.ends_at(number, pulse)} workers have ended there"
        return "workers end faster than anything gets done"

    def _hand_over(self, worker: Worker, successor: Callable[[], Worker], undone: Sequence[Ticket]) -> None:
        """Another worker takes over what this one was given, from where its generators were."""
        number = worker.number
        snapshot = self._snapshot_of(worker)
        if snapshot is not None:
            if _is_past(snapshot, worker, undone):  # that one would be waited for without end
                raise InternalError(f"{worker!r} has begun a ticket after one that it has not done")
            self._snapshots[number] = snapshot
            self._orders.history.forget_before(number, snapshot.ticket)
        self._orders.redo(
            successor(), undone={ticket.number for ticket in undone}, state=snapshot.state if snapshot else None
        )

    def _snapshot_of(self, worker: Worker) -> Snapshot | None:
        return worker.board.latest() or self._snapshots.get(worker.number)

    def _has_just_answered(self, worker: Worker) -> bool:
        """Whether it has got on since we last listened: then its answer is on its way, and nobody is to take over."""
        snapshot = self._snapshot_of(worker)
        return snapshot is not None and _is_past(snapshot, worker, self._undone(worker.number))

    def _undone(self, number: WorkerNo) -> list[Ticket]:
        return [ticket for ticket in self._delivery.outstanding() if ticket.worker == number]

    def _ticket_of(self, worker: Worker) -> Ticket | None:
        return wording.ticket_at(worker.board.read_pulse(), self._undone(worker.number))

    # --- workers that are stuck

    def _look_at(self, worker: Worker, passed_s: float) -> None:
        if not worker.leases or worker.known_pid is None:
            self._watchdog.forget(worker.seat)
        elif self._watchdog.look(worker.seat, worker.board.read_pulse(), passed_s=passed_s):
            seen = self._witness.look_at(worker)
            if seen is not None:
                self._watchdog.look_closer(worker.seat, seen, passed_s=passed_s)

    def _judge(self, worker: Worker, timings: Sequence[Timing]) -> State:
        return self._watchdog.judge(
            worker.seat,
            samples_done=sum(timing.samples for timing in timings),
            slowest_s=max(timing.longest_fetch_ns for timing in timings) / 1e9,
        )

    def _is_stuck_elsewhere(self, hedge: Worker, timings: Sequence[Timing]) -> bool:
        pulse = hedge.board.read_pulse()
        return (
            self._judge(hedge, timings) is State.STALLED
            and pulse.step is not Step.STARTING
            and _progress(pulse) > _progress(self._pool.workers[hedge.number].board.read_pulse())
        )

    def _is_new(self, worker: Worker) -> bool:
        """Whether this stall has not been reported yet; it is from now on."""
        pulse = worker.board.read_pulse()
        is_new = self._reported.get(worker.seat) != pulse
        self._reported[worker.seat] = pulse
        return is_new

    def _report(self, worker: Worker, texts: Mapping[SeatNo, str], timings: Sequence[Timing], *, did: str) -> None:
        samples = sum(timing.samples for timing in timings)
        typical_s = sum(timing.fetch_ns for timing in timings) / samples / 1e9 if samples else None
        self._chronicle.report_stall(worker, self._ticket_of(worker), texts=texts, typical_s=typical_s, did=did)

    def _can_be_hedged(self, worker: Worker) -> bool:
        pulse = worker.board.read_pulse()
        return (
            self._hedges
            and not self._pool.hedges
            and not self._has_just_answered(worker)
            and pulse.step is not Step.STARTING  # it may be worker_init_fn, which is nobody's ticket
            and self._watchdog.waits_in(worker.seat) != "disk"  # a file server that is away is away for all
            and self._hedged[pulse.ticket] < MOST_HEDGES
            and self._witness.has_memory_to_spare()
        )

    def _start_hedge(self, worker: Worker) -> str:
        number = worker.number
        if self._watchdog.waits_in(worker.seat) == "lock" and worker.stem.kind == "grown":
            self._move_to_clean_stem()  # which takes a while
            if self._has_just_answered(worker):
                return "nothing: it has just answered"
        self._hedged[worker.board.read_pulse().ticket] += 1
        did = "another worker does the same work; the first to answer is kept"
        if self._pool.stem.kind != worker.stem.kind:
            did = "another worker, started without the locks and threads of this program, does the same work"
        try:
            self._hand_over(worker, lambda: self._pool.hedge(number), self._undone(number))
        except (ArenaError, OSError) as why:  # no descriptor, no memory: this one may still come back
            if number in self._pool.hedges:
                self._dismiss(self._pool.drop_hedge(number))
            return f"nothing: another worker cannot be had ({_first_line(why)})"
        self._chronicle.note(Kind.HEDGE_STARTED, did, worker, self._ticket_of(worker))
        return did

    def _move_to_clean_stem(self) -> None:
        """A lock that was held when this program forked is held for ever in what was forked; not in a fresh process."""
        if self._rescue is None or self._pool.stem.kind == "clean":
            return
        rescue, self._rescue = self._rescue, None
        try:
            stem = rescue()
        except Exception as why:  # whatever the dataset does when it is pickled: then it stays with the fork
            if interruptions.is_of_a_handler(why):
                raise
            say_once(f"a worker waits for a lock, and a fresh process cannot take over: {_first_line(why)}")
            return
        self.rescuer = stem
        self._pool.change_stem(stem)
        self._chronicle.note(Kind.RESCUED, "workers come from a clean stem from now on")

    def note_unfit(self, why: Exception) -> None:
        """The dataset cannot be rebuilt in a fresh process: workers come from the stem that there was, as before."""
        text = _first_line(why)
        self._chronicle.note(Kind.RESCUE_FAILED, f"the dataset could not be rebuilt in a fresh process ({text})")
        say_once(f"a worker waits for a lock, and a fresh process cannot take over: {text}")

    def _settle_hedge(self, worker: Worker) -> None:
        number = worker.number
        hedge = self._pool.hedges.get(number)
        if hedge is None:
            return
        if worker is hedge:
            loser = self._pool.promote_hedge(number)
            self._chronicle.note(Kind.HEDGE_WON, "the second worker answered first; the other is stopped", worker)
        else:
            loser = self._pool.drop_hedge(number)
            self._chronicle.note(Kind.HEDGE_LOST, "the first worker came back; the second is stopped", worker)
        self._dismiss(loser)

    # --- what cannot be mended

    def _is_beyond_hope(self, worker: Worker) -> bool:
        hedge = self._pool.hedges.get(worker.number)
        return self._watchdog.is_beyond_hope(worker.seat, *([hedge.seat] if hedge else []))

    def _give_up(self, worker: Worker) -> Failure | None:
        """A sample hangs whoever is at it: it is left out, if that is what the user wants, or raised."""
        if self._has_just_answered(worker):
            return None
        number, undone = worker.number, self._undone(worker.number)
        silent_s = max(self._watchdog.silent_s(worker.seat), self._watchdog.standstill_s)
        self._watchdog.note_done(worker.seat)
        ticket = self._ticket_of(worker)
        if not self._put_into_quarantine(worker.board.read_pulse(), ticket, f"no progress for {silent_s:.0f} s"):
            return self._chronicle.frozen(worker, ticket, silent_s=silent_s)
        if number in self._pool.hedges:
            self._dismiss(self._pool.drop_hedge(number))
        self._hand_over(worker, lambda: self._pool.hedge(number), undone)
        self._dismiss(self._pool.promote_hedge(number))
        return None

    def _dismiss(self, worker: Worker) -> None:
        self._orders.lose(worker)
        self._watchdog.forget(worker.seat)

    def _put_into_quarantine(self, pulse: Pulse, ticket: Ticket | None, why: str) -> bool:
        """Never fetch this sample again; False if that is not what the user wants, or nobody knows which it is."""
        if not self._quarantines or ticket is None or pulse.step is not Step.FETCHING:
            return False
        index = ticket.index
        if isinstance(index, list | tuple):
            if not 0 <= pulse.position < len(index):
                return False
            index = index[pulse.position]
        if not is_hashable(index) or index in self._orders.quarantined:
            return False  # it is left out already: what ends workers there is another one
        self._orders.quarantined.add(index)
        self._chronicle.note_quarantine(ticket, index, why)
        return True

    def timed_out(self, timeout_s: float) -> Exception:
        """The error for a batch that has not come within torch's `timeout=`."""
        worker = self._awaited()
        return self._chronicle.timed_out(worker, self._ticket_of(worker), timeout_s=timeout_s)

    def _awaited(self) -> Worker:
        ticket = self._delivery.next_ticket()
        return self._pool.workers[ticket.worker if ticket else 0]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _progress(pulse: Pulse) -> tuple[int, int, int]:
    return (-1 if pulse.ticket is None else pulse.ticket, pulse.step, pulse.position)


def _is_past(snapshot: Snapshot, worker: Worker, undone: Sequence[Ticket]) -> bool:
    """Whether a worker has done, at the time of this snapshot, what we have not heard of yet."""
    return any(ticket.number < snapshot.ticket for ticket in undone if ticket.number in worker.leases)
