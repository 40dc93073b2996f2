"""Hedges: a second worker tries what another one is stuck at, and the first answer counts (decision 9).

One that is stuck in a lock of the trainer's is *rescued*: its hedge, and all workers that come later, are forked from a
clean stem, which has no such lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from antifreeze.engine.arena.board import Pulse, Step
from antifreeze.engine.backends import interruptions
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.chronicle import Chronicle
from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.orders import Orders
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.showing import text_of
from antifreeze.engine.succession import Succession
from antifreeze.engine.supervise.watchdog import Watchdog
from antifreeze.engine.witness import Witness
from antifreeze.errors import ArenaError
from antifreeze.observe.ledger import Kind
from antifreeze.observe.say import say_once

# Hedges of one ticket: where two of them got stuck as well, a third will not do better.
MOST_HEDGES = 2

Rescue = Callable[[], StemHandle]
"""Makes a stem without the locks and threads of this process."""


class Hedging:
    """Starts hedges, one at a time, and settles who of the two is kept."""

    def __init__(
        self,
        pool: Pool,
        orders: Orders,
        succession: Succession,
        *,
        watchdog: Watchdog,
        witness: Witness,
        chronicle: Chronicle,
        rescue: Rescue | None,
        is_wanted: bool,
    ) -> None:
        self._pool = pool
        self._orders = orders
        self._succession = succession
        self._watchdog = watchdog
        self._witness = witness
        self._chronicle = chronicle
        self._rescue = rescue
        self._is_wanted = is_wanted
        self._hedged: Counter[TicketNo | None] = Counter()
        self.rescuer: StemHandle | None = None
        """The clean stem that workers have been rescued to, if they have."""
        self._has_rescued = False
        """Whether the dataset has arrived there."""

    def hedges_of(self, worker: Worker) -> int:
        """How many have tried what this worker is at."""
        return self._hedged[worker.board.read_pulse().ticket]

    def can_help(self, worker: Worker) -> bool:
        """Whether a worker that is stuck may have a hedge."""
        return (
            self._is_wanted
            and not self._pool.hedges
            and not self._succession.has_just_answered(worker)
            and worker.board.read_pulse().step
            is not Step.STARTING  # it may be worker_init_fn, which is nobody's ticket
            and self._watchdog.waits_in(worker.seat) != "disk"  # a file server that is away is away for all
            and self.hedges_of(worker) < MOST_HEDGES
            and self._witness.has_memory_to_spare()
        )

    def start(self, worker: Worker) -> str:
        """Have another worker do the same; what has been done, in words."""
        number = worker.number
        if self._watchdog.waits_in(worker.seat) == "lock" and worker.stem.kind == "grown":
            self._move_to_clean_stem()  # which takes a while
            if self._succession.has_just_answered(worker):
                return "nothing: it has just answered"
        self._hedged[worker.board.read_pulse().ticket] += 1
        did = "another worker does the same work; the first to answer is kept"
        if self._pool.stem.kind != worker.stem.kind:
            did = "another worker, started without the locks and threads of this program, does the same work"
        try:
            self._succession.hand_over(worker, lambda: self._pool.hedge(number), self._succession.undone(number))
        except (ArenaError, OSError) as why:  # no descriptor, no memory: this one may still come back
            if number in self._pool.hedges:
                self.dismiss(self._pool.drop_hedge(number))
            return f"nothing: another worker cannot be had ({_first_line(why)})"
        self._chronicle.note(Kind.HEDGE_STARTED, did, worker, self._succession.ticket_of(worker))
        return did

    def settle(self, worker: Worker) -> None:
        """This worker has answered: if two were at it, it is the one to keep."""
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
        self.dismiss(loser)

    def compare(self, hedge: Worker) -> None:
        """A hedge is stuck, too: past where the first one is, it is the one to keep; before that, another may do better."""
        pulse, first = hedge.board.read_pulse(), self._pool.workers[hedge.number]
        if pulse.step is Step.STARTING:
            return
        if _progress(pulse) > _progress(first.board.read_pulse()):
            self._chronicle.note(Kind.HEDGE_WON, "the second worker got further; the first is stopped", hedge)
            self.dismiss(self._pool.promote_hedge(hedge.number))
        elif _progress(pulse) < _progress(first.board.read_pulse()) and self.hedges_of(first) < MOST_HEDGES:
            what = "the second worker is stuck at something that the first one got past"
            self._chronicle.note(Kind.HEDGE_GIVEN_UP, what, hedge)
            self.dismiss(self._pool.drop_hedge(hedge.number))

    def is_stuck_where_the_first_is(self, hedge: Worker) -> bool:
        """Whether a hedge, which is stuck and still there, has got exactly as far as the worker that it stands beside."""
        if self._pool.hedges.get(hedge.number) is not hedge:
            return False
        pulse = hedge.board.read_pulse()
        return pulse.step is not Step.STARTING and pulse == self._pool.workers[hedge.number].board.read_pulse()

    def dismiss(self, worker: Worker) -> None:
        """Nobody waits for this one any more."""
        self._orders.lose(worker)
        self._watchdog.forget(worker.seat)

    # --- the stems that hedges come from

    def is_to_be_born(self, worker: Worker) -> bool:
        """Whether this worker is not born yet, and another stem could bring it up if this one does not."""
        is_hedge = self._pool.hedges.get(worker.number) is worker
        return worker.known_pid is None and (is_hedge or worker.stem is self.rescuer)

    def give_up_stem_of(self, worker: Worker) -> None:
        """What is to fork this worker is stuck: it is of no use, and others may be hedged or started from another one."""
        why = f"it has been blocked for {self._watchdog.silent_s(worker.seat):.0f} s"
        if self._pool.hedges.get(worker.number) is worker:
            what = f"the second worker never came to life: {why} in what was to start it"
            self._chronicle.note(Kind.HEDGE_GIVEN_UP, what, worker)
            self.dismiss(self._pool.drop_hedge(worker.number))
        self._pool.give_up_stem(worker.stem)
        if worker.stem is self.rescuer:
            self._note_rescue_failed(why)

    def note_settled(self, stem: StemHandle) -> None:
        """The dataset has arrived in this stem, or in a worker of it that rebuilds the dataset itself."""
        if stem is self.rescuer and not self._has_rescued:
            self._has_rescued = True
            self._chronicle.note(Kind.RESCUED, "workers come from a clean stem from now on")

    def note_unfit(self, why: str) -> None:
        """The dataset cannot be rebuilt in a fresh process: workers come from the stem that there was, as before."""
        self._note_rescue_failed(why)

    def _note_rescue_failed(self, why: str) -> None:
        self._chronicle.note(Kind.RESCUE_FAILED, f"the dataset could not be rebuilt in a fresh process ({why})")
        say_once(f"a worker waits for a lock, and a fresh process cannot take over: {why}")

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


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {text_of(error)}".splitlines()[0]


def _progress(pulse: Pulse) -> tuple[int, int, int]:
    return (-1 if pulse.ticket is None else pulse.ticket, pulse.step, pulse.position)
