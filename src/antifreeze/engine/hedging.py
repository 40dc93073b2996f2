"""Hedges: a second worker tries what another one is stuck at, and the first answer counts (decision 9)."""

from __future__ import annotations

from collections import Counter

from antifreeze.engine.arena.board import Pulse, Step
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

# Hedges of one ticket: where two of them got stuck as well, a third will not do better.
MOST_HEDGES = 2


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
        is_wanted: bool,
    ) -> None:
        self._pool = pool
        self._orders = orders
        self._succession = succession
        self._watchdog = watchdog
        self._witness = witness
        self._chronicle = chronicle
        self.is_wanted = is_wanted
        self._hedged: Counter[TicketNo | None] = Counter()

    def hedges_of(self, worker: Worker) -> int:
        """How many have tried what this worker is at."""
        return self._hedged[worker.board.read_pulse().ticket]

    def can_help(self, worker: Worker) -> bool:
        """Whether a worker that is stuck may have a hedge."""
        return (
            not self.is_none_for(worker)
            and not self._pool.hedges
            and bool(self._succession.undone(worker.number))
            and not self._succession.has_just_answered(worker)
            and self._watchdog.waits_in(worker.seat) != "disk"  # a file server that is away is away for all
            and self.hedges_of(worker) < MOST_HEDGES
            and self._witness.has_memory_to_spare()
            and not self._witness.may_take_from_others(worker)
        )

    def is_none_for(self, worker: Worker) -> bool:
        """Whether this worker has no hedge wherever it is stuck; while it starts, it may be at nobody's ticket.

        Whoever makes samples of what comes out of a queue, or a pipe, would take other items for them.
        """
        takes_from_others = worker.stem.holds_queue or worker.stem.holds_pipe
        return not self.is_wanted or takes_from_others or worker.board.read_pulse().step is Step.STARTING

    def start(self, worker: Worker) -> str:
        """Have another worker do the same; what has been done, in words."""
        number = worker.number
        self._hedged[worker.board.read_pulse().ticket] += 1
        did = "another worker does the same work; the first to answer is kept"
        try:
            self._succession.hand_over(worker, lambda: self._pool.hedge(number), self._succession.undone(number))
        except (ArenaError, OSError) as why:  # no descriptor, no memory: this one may still come back
            if number in self._pool.hedges:
                self.dismiss(self._pool.drop_hedge(number))
            return f"nothing: another worker cannot be had ({_first_line(why)})"
        self._chronicle.note(Kind.HEDGE_STARTED, did, worker, self._succession.ticket_of(worker))
        return did

    def note_death(self, hedge: Worker) -> None:
        """A hedge that died has not got stuck: another one may be tried. (Deaths are bounded by the supervisor.)"""
        self._pool.drop_hedge(hedge.number)
        self._hedged[self._pool.workers[hedge.number].board.read_pulse().ticket] -= 1

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

    def end_idle(self) -> None:
        """A hedge that has nothing to do keeps every other stuck worker from having one: settle it now.

        Other workers may have done its work, or no slot could be had for it.
        """
        for number, hedge in list(self._pool.hedges.items()):
            if hedge.leases:
                continue
            if self._succession.undone(number):
                self._chronicle.note(Kind.HEDGE_GIVEN_UP, "the second worker could not be given the work", hedge)
                self.dismiss(self._pool.drop_hedge(number))
            else:
                self._chronicle.note(Kind.HEDGE_WON, "other workers have done the work; the first is stopped", hedge)
                self.dismiss(self._pool.promote_hedge(number))

    def replace_idle(self, worker: Worker) -> None:
        """Put another worker in the place of a stuck one whose work others have done."""
        number = worker.number
        if number not in self._pool.hedges:
            try:
                self._succession.hand_over(worker, lambda: self._pool.hedge(number), [])
            except (ArenaError, OSError):  # nobody waits for it: at the next look there may be room for another
                if number in self._pool.hedges:
                    self.dismiss(self._pool.drop_hedge(number))
                return
        self.dismiss(self._pool.promote_hedge(number))

    def dismiss(self, worker: Worker) -> None:
        """Nobody waits for this one any more."""
        self._orders.lose(worker)
        self._watchdog.forget(worker.seat)

    # --- the stems that hedges come from

    def is_to_be_born(self, worker: Worker) -> bool:
        """Whether this worker is not born yet, and another stem could bring it up if this one does not."""
        return worker.known_pid is None and self._pool.hedges.get(worker.number) is worker

    def give_up_stem_of(self, hedge: Worker) -> None:
        """What is to fork this hedge is stuck: it is of no use, and others may be started from another one."""
        silent_s = self._watchdog.silent_s(hedge.seat)
        what = f"the second worker never came to life: what was to start it has been blocked for {silent_s:.0f} s"
        self._chronicle.note(Kind.HEDGE_GIVEN_UP, what, hedge)
        self.dismiss(self._pool.drop_hedge(hedge.number))
        self._pool.give_up_stem(hedge.stem)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {text_of(error)}".splitlines()[0]


def _progress(pulse: Pulse) -> tuple[int, int, int]:
    return (-1 if pulse.ticket is None else pulse.ticket, pulse.step, pulse.position)
