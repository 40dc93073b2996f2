"""The bench in the trainer: makes the batch of a ticket as the worker would that the ticket is meant for.

Each worker number has a bench of its own, the very one that stands in a worker, and generators of its own. While a batch
is made, this process *plays* that worker: its random state, `get_worker_info()` and torch's table of collate functions
are the worker's, and afterwards the trainer's again. Threads, signals and other settings stay the trainer's throughout.

A map-style dataset is the trainer's own, for all numbers; what it keeps from sample to sample beside generators is shared
by them, as it is without workers. An iterable dataset is read once for each number, from a copy of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Hashable, Iterator, Set
from functools import partial
from typing import Any, TypeVar

from antifreeze.engine.arena import board as boards
from antifreeze.engine.backends import interruptions
from antifreeze.engine.crossing import results
from antifreeze.engine.crossing.explain import explain_batch
from antifreeze.engine.crossing.raised import unwrap
from antifreeze.engine.inline.copying import copied
from antifreeze.engine.inline.sending import Sender
from antifreeze.engine.numbers import SeatNo, WorkerNo
from antifreeze.engine.orders import quarantine_for
from antifreeze.engine.plan.ticket import NOBODY, Ticket
from antifreeze.engine.seclusion import alone
from antifreeze.engine.wire.messages import Begin, Mishap, Work
from antifreeze.engine.worker import collate
from antifreeze.engine.worker.bench import NotMade
from antifreeze.engine.worker.birth import ticket_state
from antifreeze.engine.worker.exchange import Exchange
from antifreeze.engine.worker.kinds import Shared, exchange_global
from antifreeze.engine.worker.main import bench_for
from antifreeze.engine.worker.notices import watch_questions
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.torch_side.workers import set_worker_info, worker_info

T = TypeVar("T")


class Refused(Exception):
    """There is no batch: user code raised `error`, at the sample at `position` (-1: at none, or nobody knows which)."""

    def __init__(self, error: Exception, position: int) -> None:
        super().__init__(error, position)
        self.error = error
        self.position = position


class Part:
    """What this process needs to play one worker."""

    def __init__(self, recipe: Recipe, number: WorkerNo, exchange: Exchange) -> None:
        self.number = number
        self.seat = SeatNo(number)
        self.known_pid = os.getpid()
        self.leases = ()
        self.board = boards.create_private()
        self.bench = bench_for(recipe)(recipe, number, self.board, None)
        self.bench.is_interruption = interruptions.is_of_a_handler
        self._info = worker_info()
        self._exchange = exchange
        self._held = exchange.take()
        self.shared: Shared
        """The generators of the process as this worker left them; set by whoever gives them back to the trainer."""

    def enter(self) -> None:
        """This process is that worker from now on."""
        set_worker_info(self._info)
        self._exchange.give(self._held)

    def leave(self) -> None:
        """It has done something, and stops there."""
        self._held = self._exchange.take()


class Lent:
    """The generators of the process, while they are a worker's."""

    def __init__(self, shared: Shared) -> None:
        self.left = shared
        """As the worker left them."""
        self.to: Part | None = None
        """Whose they are then; None: of a worker that was interrupted, and is to be as it was before."""


class InlineBench:
    """Makes the batches of all workers, one at a time."""

    def __init__(self, recipe: Recipe, *, quarantined: Set[Hashable] = frozenset()) -> None:
        """Every worker is born here and now, `worker_init_fn` included. `quarantined`: indices that are not fetched."""
        self._quarantined = quarantined
        self._own = Exchange(recipe)
        self._sender = Sender()
        self.parts: list[Part] = []
        for number in range(recipe.num_workers):
            # Which seeds them itself. Nothing that another thread draws before that may come again.
            unseeded = ticket_state(int.from_bytes(os.urandom(8), "little"))
            with interruptions.held(), self._lent_out(unseeded) as lent:
                part = interruptions.let_through(partial(self._give_birth, recipe, WorkerNo(number)))
            part.shared = lent.left
            self.parts.append(part)

    def make(self, ticket: Ticket) -> Callable[[], Any]:
        """What gives the batch of this ticket, once; raises Refused with the user's error, or NothingLeft, or EndOfStream.

        Interrupted by a signal it can be called again, and makes the same batch; a stream has lost an item then.
        """
        part = self.part_of(ticket)
        work = self._work_of(ticket, is_replay=False)
        try:
            return self._play(part, lambda: self._send(part.bench.make(work), part))
        except NotMade as failure:
            error, position = unwrap(failure.wrapper, results.find_inherited), failure.position
        raise Refused(error, position)

    def _send(self, batch: Any, part: Part) -> Callable[[], Any]:
        try:
            return self._sender.send(batch)
        except (OSError, MemoryError) as error:  # the machine's, not the batch's
            raise Refused(error, -1) from error
        except Exception as error:  # of a __reduce__ of the user's, or of pickle itself
            raise Refused(explain_batch(batch, error, worker=part.number), -1) from error

    def part_of(self, ticket: Ticket) -> Part:
        """Whose ticket it is; one that brings its seed is anybody's."""
        return self.parts[ticket.worker if ticket.worker != NOBODY else 0]

    def take_mishaps(self, worker: WorkerNo) -> tuple[Mishap, ...]:
        """What went wrong with samples of this worker since they were last taken."""
        return self.parts[worker].bench.take_mishaps()

    def begin_pass(self, begin: Begin, worker: WorkerNo) -> None:
        """This worker reads its stream from the start once more."""
        part = self.parts[worker]
        self._play(part, lambda: part.bench.begin_pass(begin))

    def resume(self, worker: WorkerNo, state: bytes) -> None:
        """Go on where a worker stopped, whose generators (and whose stream) were in this state."""
        part = self.parts[worker]
        self._play(part, lambda: part.bench.resume(state))

    def replay(self, ticket: Ticket) -> None:
        """Draw what a worker drew for this ticket, and nothing else."""
        part = self.part_of(ticket)
        work = self._work_of(ticket, is_replay=True)
        self._play(part, lambda: part.bench.replay(work))

    def _work_of(self, ticket: Ticket, *, is_replay: bool) -> Work:
        left_out = quarantine_for(ticket, self._quarantined)
        return Work(ticket.number, ticket.index, None, 0, (), is_replay, ticket.seed, *left_out)

    def _give_birth(self, recipe: Recipe, number: WorkerNo) -> Part:
        if not recipe.is_stream:
            return Part(recipe, number, self._own)
        recipe = dataclasses.replace(recipe, dataset=copied(recipe.dataset))
        return Part(recipe, number, Exchange(recipe))

    def _play(self, part: Part, act: Callable[[], T]) -> T:
        """Do this as that worker; an interruption leaves the worker as it was before."""
        with interruptions.held(), self._lent_out(part.shared) as lent:
            part.enter()
            stop_watching = None if part.bench.notices.has_asked else watch_questions(part.bench.notices)
            try:
                result = interruptions.let_through(act)
            except BaseException as error:
                interruption = interruptions.behind(error)
                if interruption is not None or not isinstance(error, Exception):
                    part.bench.break_off()
                    raise (interruption or error) from None
                part.leave()
                lent.to = part
                raise
            finally:
                if stop_watching is not None:
                    stop_watching()
                part.bench.stopwatch.sent()
                part.bench.rest()
            part.leave()
            lent.to = part
            return result

    @contextlib.contextmanager
    def _lent_out(self, shared: Shared) -> Iterator[Lent]:
        """Afterwards, generators, `get_worker_info()` and collate functions are what they were before."""
        with alone():
            lent = Lent(shared)
            info, held = worker_info(), self._own.take()
            of_the_program = exchange_global(shared)
            collate.take_over()
            try:
                yield lent
            finally:
                collate.give_back()
                set_worker_info(info)
                lent.left = exchange_global(of_the_program)
                self._own.give(held)
                if lent.to is not None:
                    lent.to.shared = lent.left
