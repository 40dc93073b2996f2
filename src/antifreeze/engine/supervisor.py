"""What the trainer does when a worker is lost or stuck: replaces it, has its work done again, or says that it is over.

The decisions are `supervise`'s, the words are the chronicle's; here it is done.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from antifreeze.codes import named
from antifreeze.engine import wording
from antifreeze.engine.arena.board import Pulse, Step, Timing
from antifreeze.engine.backends.hazards.quiet import can_be_taken
from antifreeze.engine.backends.process import CannotFork
from antifreeze.engine.backends.start import OnlyInProcess
from antifreeze.engine.chronicle import Chronicle, Failure
from antifreeze.engine.flow.delivery import Delivery
from antifreeze.engine.hedging import Hedging
from antifreeze.engine.numbers import SeatNo, TicketNo, WorkerNo
from antifreeze.engine.orders import Orders, key_of
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.pool.happenings import Lost
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.succession import Succession
from antifreeze.engine.supervise.recovery import Recovery, Verdict
from antifreeze.engine.supervise.watchdog import State, Watchdog
from antifreeze.engine.wire.messages import Spent
from antifreeze.engine.witness import Witness
from antifreeze.observe.say import say_once

# A worker that stays where it is is reported again when it has been there so many times as long.
REPORT_AGAIN = 10


class Supervisor:
    """Looks after the workers of one iterator."""

    def __init__(
        self,
        pool: Pool,
        orders: Orders,
        delivery: Delivery[Any],
        succession: Succession,
        *,
        recovery: Recovery,
        watchdog: Watchdog,
        witness: Witness,
        chronicle: Chronicle,
        hedges: bool,
        quarantines: bool,
        quarantines_early: bool,
    ) -> None:
        self._pool = pool
        self._orders = orders
        self._delivery = delivery
        self._recovery = recovery
        self._watchdog = watchdog
        self._witness = witness
        self._chronicle = chronicle
        self._quarantines = quarantines
        self._quarantines_early = quarantines and quarantines_early
        self._succession = succession
        self.hedging = Hedging(
            pool,
            orders,
            self._succession,
            watchdog=watchdog,
            witness=witness,
            chronicle=chronicle,
            is_wanted=hedges,
        )
        self._stuck_twice: set[SeatNo] = set()
        """Hedges that have been reported to be stuck where the first worker is."""
        self._last_given: dict[Hashable, SeatNo] = {index: SeatNo(-1) for index in orders.quarantined}
        """Samples in quarantine, and the newest seat there was then: up to it, workers may have been given them before."""
        self._reported: dict[SeatNo, tuple[Pulse, float]] = {}
        """Where a worker was when it was last reported, and for how long."""
        self.is_calm = True
        """Whether there is nobody to look after: then nobody has to tell what has been done."""
        self.most_busy: int | None = None
        """How many workers may be at work at the same time; None: all of them."""

    def note_done(self, worker: Worker, ticket: TicketNo) -> None:
        """This worker has carried out this ticket: of two that were at it, it is the one to keep."""
        self._recovery.note_done(ticket)
        self._watchdog.note_done(worker.seat)
        if self._pool.hedges:
            self.hedging.settle(worker)
        self.is_calm = self._recovery.is_calm and self._watchdog.is_calm and not self._pool.hedges

    def look(self, *, passed_s: float) -> Failure | None:
        """The trainer has waited for so long, and nothing has come: see how the workers are."""
        self.is_calm = False
        timings = [worker.board.read_timing() for worker in self._pool.workers]
        others_got_on = any(
            timing.batches and not worker.leases for worker, timing in zip(self._pool.workers, timings, strict=True)
        )
        everybody = (*self._pool.workers, *self._pool.hedges.values())
        pulses = {worker.seat: worker.board.read_pulse() for worker in everybody}  # once: they may move at any moment
        self._look_at_all(everybody, pulses, passed_s, others_got_on=others_got_on)
        self._watchdog.note_waited(passed_s)
        self._relieve(worker for worker in self._pool.workers if pulses[worker.seat].step is Step.WAITING)
        for worker in everybody:
            if self.hedging.is_to_be_born(worker) and self._watchdog.is_stillborn(worker.seat):
                self.hedging.give_up_stem_of(worker)
        self.hedging.end_idle()
        stuck_hedges = [hedge for hedge in self._pool.hedges.values() if self._judge(hedge, timings) is State.STALLED]
        for hedge in stuck_hedges:
            self.hedging.compare(hedge)
        states = {worker: self._judge(worker, timings) for worker in self._pool.workers}
        stuck = [worker for worker, state in states.items() if state is State.STALLED]
        unwell = [worker for worker, state in states.items() if state is not State.FINE]
        unreported = [worker for worker in unwell if self._is_to_be_reported(worker.seat, pulses[worker.seat])]
        idle = [worker for worker in stuck if not self._succession.undone(worker.number)]
        for worker in stuck:
            if worker not in idle and (self._is_beyond_hope(worker) or self._is_known_to_hang(worker, stuck_hedges)):
                return self._give_up(worker)
        for hedge in stuck_hedges:
            self._report_if_stuck_twice(hedge)
        stuck.sort(key=self.hedging.hedges_of)  # first those that had none
        hedged = {worker: self.hedging.start(worker) for worker in stuck if self.hedging.can_help(worker)}
        texts = self._witness.texts_of(unreported)
        for worker in unreported:
            has_moved = worker.board.read_pulse() != pulses[worker.seat]
            if has_moved and worker not in hedged and worker not in idle:
                continue  # it has got on while it was asked for its stack, which shows something else now
            did = hedged.get(worker, "nothing yet: it may still come back")
            if worker in idle and self.hedging.is_wanted:
                did = "another worker takes its place; others have done its work"
            is_at_work = states[worker] is State.SLOW
            if is_at_work:
                did = "nothing: it is at work, and is left alone, however long it takes (timeout= would set a limit)"
            self._report(worker, texts, timings, is_at_work=is_at_work, did=did)
        self._give_up_workers_if_lost(stuck, stuck_hedges, samples_done=sum(timing.samples for timing in timings))
        for worker in idle if self.hedging.is_wanted else ():
            self.hedging.replace_idle(worker)
        return self._give_up(self._awaited()) if self._watchdog.is_at_a_standstill else None

    def _relieve(self, short: Iterable[Worker]) -> None:
        """Make room for workers that wait for shared memory; ArenaError if that has not helped for too long."""
        for worker in short:
            self._orders.give_back_memory()
            ticket, waited_s = self._succession.ticket_of(worker), self._watchdog.silent_s(worker.seat)
            if self._watchdog.is_starved(worker.seat):
                raise self._chronicle.starved(worker, ticket, waited_s=waited_s)
            if not waited_s:  # this is the first look at it
                self._chronicle.note_memory_short(worker, ticket)

    def _give_up_workers_if_lost(
        self, stuck: Sequence[Worker], stuck_hedges: Sequence[Worker], *, samples_done: int
    ) -> None:
        """Raise OnlyInProcess if workers wait in a lock that only the trainer can pass.

        The dataset holds something of which that is known; or the fork itself has cost all workers their first sample: two
        of them wait at the same place, where no worker has ever got past. A worker that is at something else may be the
        one who holds the lock; and where the trainer cannot pass either, it would be lost, too.
        """
        at_work = [worker for worker in self._pool.workers if worker.leases]
        in_locks = [worker for worker in stuck if worker.leases and self._watchdog.waits_in(worker.seat) == "lock"]
        if not in_locks or len(in_locks) < len(at_work):
            return
        # Other processes end such waits; and whoever sets an event of multiprocessing would wait for one that we end in it.
        if all(map(self._witness.shares_its_lock, in_locks)):
            return
        stem = in_locks[0].stem
        is_lost = stem.kind == "grown" and not samples_done and self._has_second_witness(in_locks, stuck_hedges)
        if (stem.risk is None and not is_lost) or not can_be_taken(stem.busy_locks):
            return
        if stem.risk is not None:
            raise OnlyInProcess(f"a worker waits in vain; {stem.risk} ({named('AF101')})")
        raise OnlyInProcess(
            f"two forked workers wait in a lock, one after the other, at the first sample ({named('AF104')}): a "
            "thread of this program held it, or served it, when they were forked. multiprocessing_context='spawn' "
            "starts workers without such locks"
        )

    def _has_second_witness(self, in_locks: Sequence[Worker], stuck_hedges: Sequence[Worker]) -> bool:
        """Whether a hedge is stuck in a lock where the first worker is; or another worker, where there can be no hedge."""
        without = [each for each in in_locks if self.hedging.is_none_for(each)]
        return len(without) > 1 or any(
            hedge.number in {worker.number for worker in in_locks}
            and self._watchdog.waits_in(hedge.seat) == "lock"
            and self.hedging.is_stuck_where_the_first_is(hedge)
            for hedge in stuck_hedges
        )

    def recover(self, lost: Lost) -> Failure | None:
        """Have another worker do what this one has not done, from where its generators were."""
        self.is_calm = False
        worker, number = lost.worker, lost.worker.number
        pulse, undone = worker.board.read_pulse(), self._succession.undone(number)
        ticket = wording.ticket_at(pulse, undone)
        cause = self._witness.cause_of(lost)
        suspected = wording.suspected(pulse, undone)
        if cause.is_oom and self.most_busy != 1:  # with fewer at work at a time, the same sample may find room
            suspected = suspected._replace(step=Step.IDLE)
        verdict = self._recovery.judge(number, suspected)
        if lost.unborn is not None and verdict is not Verdict.REPLACE:  # the machine has no room for so many workers
            raise CannotFork(wording.what_happened(lost))
        self._watchdog.forget(worker.seat)
        self._orders.lose(worker)
        if verdict is Verdict.HOPELESS or (
            verdict is Verdict.POISON
            and not self._put_into_quarantine(worker, pulse, ticket, f"the worker {cause.what}")
        ):
            why, times = self._why(verdict, number, pulse), self._recovery.ends_at(number, pulse)
            return self._chronicle.loss(lost, pulse, ticket, why=why, cause=cause, times=max(1, times))
        obstacle = self._succession.obstacle(worker)
        if obstacle is not None:
            return self._chronicle.loss(lost, pulse, ticket, why=obstacle, cause=cause, times=1)
        self._chronicle.note_end(lost, pulse, ticket, cause)
        if worker.stem.holds_queue and pulse.step is not Step.STARTING:
            say_once(
                "a worker has ended, and its dataset holds a queue that processes share: if samples come out of it, what "
                "the worker had taken is lost, and whoever does its work again takes other items. replay=False or "
                "--no-replay makes such an end an error"
            )
        if cause.is_oom:
            self._run_one_fewer()
        if self._pool.hedges.get(number) is worker:
            self.hedging.note_death(worker)
        elif number in self._pool.hedges:
            self._pool.promote_hedge(number)
        else:
            self._succession.hand_over(worker, lambda: self._pool.replace(number), undone)
            self._orders.confirm_death(worker)
        return None

    def renew(self, worker: Worker, spent: Spent) -> None:
        """Have another worker go on where this one, which waits to leave, has stopped."""
        number = worker.number
        self._watchdog.forget(worker.seat)
        if self._pool.hedges.get(number) is worker:
            self.hedging.dismiss(self._pool.drop_hedge(number))
        elif number in self._pool.hedges:
            self.hedging.dismiss(self._pool.promote_hedge(number))
        else:
            self._succession.hand_over(worker, lambda: self._retire(worker), self._succession.undone(number))
            self._pool.await_end(worker)
        self._chronicle.note_renewal(worker, spent)

    def _retire(self, worker: Worker) -> Worker:
        for ticket in list(worker.leases):
            self._orders.take_back(worker, ticket)
        return self._pool.renew(worker.number)

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

    # --- workers that are stuck

    def _look_at_all(
        self, workers: Sequence[Worker], pulses: Mapping[SeatNo, Pulse], passed_s: float, *, others_got_on: bool
    ) -> None:
        silent = []
        for worker in workers:
            if not worker.leases:
                self._watchdog.forget(worker.seat)
            elif self._watchdog.look(worker.seat, pulses[worker.seat], passed_s=passed_s):
                silent.append(worker)
            if others_got_on:
                self._watchdog.note_others_got_on(worker.seat)
        seen = self._witness.look_at(silent) if silent else {}
        for worker in silent:
            self._watchdog.look_closer(worker.seat, seen.get(worker.seat), passed_s=passed_s)

    def _judge(self, worker: Worker, timings: Sequence[Timing]) -> State:
        if worker.known_pid is None and not self.hedging.is_to_be_born(worker):
            return State.FINE  # its stem may be importing; only the limit of a standstill holds for it
        return self._watchdog.judge(
            worker.seat,
            samples_done=sum(timing.samples for timing in timings),
            slowest_s=max(timing.longest_fetch_ns for timing in timings) / 1e9,
        )

    def _is_to_be_reported(self, seat: SeatNo, pulse: Pulse) -> bool:
        """Whether this stall is new, or has lasted far longer than when it was reported; from now on it is reported."""
        silent_s = self._watchdog.silent_s(seat)
        before, reported_s = self._reported.get(seat, (None, 0.0))
        if before == pulse and silent_s < REPORT_AGAIN * reported_s:
            return False
        self._reported[seat] = pulse, silent_s
        return True

    def _report(
        self,
        worker: Worker,
        texts: Mapping[SeatNo, str],
        timings: Sequence[Timing],
        *,
        is_at_work: bool,
        did: str,
    ) -> None:
        samples = sum(timing.samples for timing in timings)
        typical_s = sum(timing.fetch_ns for timing in timings) / samples / 1e9 if samples else None
        self._chronicle.report_stall(
            worker,
            self._succession.ticket_of(worker),
            texts=texts,
            typical_s=typical_s,
            is_at_work=is_at_work,
            did=did,
        )

    # --- what cannot be mended

    def _is_beyond_hope(self, worker: Worker) -> bool:
        hedge = self._pool.hedges.get(worker.number)
        return self._watchdog.is_beyond_hope(worker.seat, *([hedge.seat] if hedge else []))

    def _is_known_to_hang(self, worker: Worker, stuck_hedges: Sequence[Worker]) -> bool:
        """Whether this worker is at a sample that can be left out now: a second one is stuck there, and only there."""
        hedge = self._pool.hedges.get(worker.number)
        if hedge is None or hedge not in stuck_hedges or not self._quarantines_early:
            return False
        if not self.hedging.is_stuck_where_the_first_is(hedge):
            return False
        pulse, timing = hedge.board.read_pulse(), hedge.board.read_timing()
        return self._sample_to_blame(worker, pulse, self._succession.ticket_of(worker)) is not None and (
            self._watchdog.hangs_whoever_tries(
                worker.seat, hedge.seat, second_got_on=pulse.position > 0 or timing.batches > 0
            )
        )

    def _report_if_stuck_twice(self, hedge: Worker) -> None:
        """Say once that a second worker is stuck where the first one is, and how long both are waited for."""
        if hedge.seat in self._stuck_twice or not self.hedging.is_stuck_where_the_first_is(hedge):
            return
        self._stuck_twice.add(hedge.seat)
        first = self._pool.workers[hedge.number]
        left_s = self._watchdog.left_s(first.seat, hedge.seat)
        ticket = self._succession.ticket_of(first)
        self._chronicle.report_second_stall(hedge, ticket, left_s=left_s, quarantines=self._quarantines)

    def _give_up(self, worker: Worker) -> Failure | None:
        """A sample hangs whoever is at it: it is left out, if that is what the user wants, or raised."""
        if self._succession.has_just_answered(worker):
            return None
        number, undone = worker.number, self._succession.undone(worker.number)
        silent_s = max(self._watchdog.silent_s(worker.seat), self._watchdog.standstill_s)
        self._watchdog.note_done(worker.seat)
        ticket = self._succession.ticket_of(worker)
        why = f"no progress for {silent_s:.0f} s"
        if not self._put_into_quarantine(worker, worker.board.read_pulse(), ticket, why):
            return self._chronicle.frozen(worker, ticket, silent_s=silent_s)
        if number in self._pool.hedges:
            self.hedging.dismiss(self._pool.drop_hedge(number))
        self._succession.hand_over(worker, lambda: self._pool.hedge(number), undone)
        self.hedging.dismiss(self._pool.promote_hedge(number))
        return None

    def _put_into_quarantine(self, worker: Worker, pulse: Pulse, ticket: Ticket | None, why: str) -> bool:
        """Never fetch this sample again; False if that is not what the user wants, or nobody knows which it is."""
        index = self._sample_to_blame(worker, pulse, ticket)
        if not self._quarantines or ticket is None or index is None:
            return False
        if index not in self._orders.quarantined:
            self._orders.quarantined.add(index)
            self._chronicle.note_quarantine(ticket, index, why)
        self._note_last_given(index)
        return True

    def _sample_to_blame(self, worker: Worker, pulse: Pulse, ticket: Ticket | None) -> Hashable:
        """What the one sample that a worker is at is known by, if it can be left out; None: there is no such sample."""
        if ticket is None or pulse.step is not Step.FETCHING:
            return None
        position = pulse.position if ticket.is_batched else 0
        if not 0 <= position < len(ticket.samples):
            return None
        key = key_of(ticket.samples[position])
        if key in self._orders.quarantined and worker.seat > self._note_last_given(key):
            return None  # left out already: what ends workers is another one
        return key

    def _note_last_given(self, index: Hashable) -> SeatNo:
        """The last worker that may have been given a sample before it was put into quarantine."""
        everybody = (*self._pool.workers, *self._pool.hedges.values())
        return self._last_given.setdefault(index, max(worker.seat for worker in everybody))

    def timed_out(self, timeout_s: float) -> Exception:
        """The error for a batch that has not come within torch's `timeout=`."""
        worker = self._awaited()
        return self._chronicle.timed_out(worker, self._succession.ticket_of(worker), timeout_s=timeout_s)

    def _awaited(self) -> Worker:
        ticket = self._delivery.next_ticket()
        return self._pool.workers[ticket.worker if ticket else 0]
