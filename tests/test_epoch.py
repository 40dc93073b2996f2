"""The path of a batch, with workers, memory and time made up: no sequence of events loses, repeats or aliases a batch.

`Trainer` is a state machine around a real `Epoch` and a real `Arena`. Its workers are lists of messages, its memory are
objects that remember what was written into them, and its user checks everything that is still held after every step.
"""

import contextlib
import dataclasses
import gc
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antifreeze.engine import chronicle as chronicle_module
from antifreeze.engine import forks
from antifreeze.engine import intake as intake_module
from antifreeze.engine import orders as orders_module
from antifreeze.engine import outcomes as outcomes_module
from antifreeze.engine.arena import arena as arena_module
from antifreeze.engine.arena.arena import MOST_LENT, SPARE, Arena
from antifreeze.engine.arena.board import Pulse, Snapshot, Step, Timing
from antifreeze.engine.arena.layout import Parcel
from antifreeze.engine.arena.segment import CHUNK
from antifreeze.engine.arena.slots import State
from antifreeze.engine.backends.start import OnlyInProcess
from antifreeze.engine.crossing import results
from antifreeze.engine.epoch import Epoch
from antifreeze.engine.flow import history as history_module
from antifreeze.engine.marks import Marks
from antifreeze.engine.numbers import SeatNo, SlotNo, TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.pool import happenings as happenings_module
from antifreeze.engine.pool.happenings import Gone, Heard, Lost, StemSaid
from antifreeze.engine.supervise.cause import Cause, cause_of
from antifreeze.engine.supervise.watchdog import Seen
from antifreeze.engine.wire.messages import Born, Failed, Filled, Resume, Tell, Told, Unfit, Withdraw, Work
from antifreeze.errors import CannotCross, InternalError, SampleFailed, WorkerCrashed, WorkerKilled, WorkerLost
from antifreeze.observe.accounts import Account
from antifreeze.observe.ledger import Kind, Ledger
from antifreeze.options import Options


class WouldWait(Exception):
    """Nothing has arrived: the real pool would sleep now."""


class Memory:
    """One piece of shared memory, seen by the trainer and by workers alike."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.content: Any = None
        self.is_large = False


class Owner:
    """Stands for the memory that tensors point into; dies with the last of them."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory


class FakeSegment:
    """A mapping of some memory into the trainer."""

    open_descriptors: dict[int, Memory]

    def __init__(self, fd: int, size: int) -> None:
        self.memory = self.open_descriptors[fd]
        assert self.memory.size == size
        self.fd = fd
        self.size = size

    def owner(self) -> Owner:
        return Owner(self.memory)

    def close_descriptor(self) -> None:
        del self.open_descriptors[self.fd]


def fake_read_batch(
    segment: FakeSegment, parcel: Parcel, form: None, *, lend: Callable[[], Owner | None], find: Any, shared: Any
) -> Any:
    owner = lend() if segment.memory.is_large else None
    return Batch(segment.memory.content, owner)


@dataclass
class Batch:
    """What the user gets; its content is in lent memory, or in memory of its own."""

    content: Any
    owner: Owner | None


class FakeBoard:
    """What a worker leaves behind."""

    def __init__(self) -> None:
        self.pulse = Pulse(Step.IDLE, None, -1)
        self.snapshot: Snapshot | None = None
        self.samples = 100

    def read_pulse(self) -> Pulse:
        return self.pulse

    def latest(self) -> Snapshot | None:
        return self.snapshot

    def snapshots(self) -> list[Snapshot]:
        return [self.snapshot] if self.snapshot else []

    def latest_ticket(self) -> TicketNo | None:
        return self.snapshot.ticket if self.snapshot else None

    def read_timing(self) -> Timing:
        return Timing(0, 0, 0, self.samples, 10, 10_000_000, 0, ())

    def read_text(self) -> str:
        return ""


class FakeWitness:
    """Sees what the test says."""

    def __init__(self) -> None:
        self.seen = Seen(cpu_s=0.0, io_bytes=0, is_traced=False, is_stopped=False, waits_in="socket")
        self.is_out_of_memory = False

    def look_at(self, workers: Any) -> dict[SeatNo, Seen]:
        return {worker.seat: self.seen for worker in workers}

    def texts_of(self, workers: Any) -> dict[SeatNo, str]:
        return {worker.seat: "" for worker in workers}

    def shares_its_lock(self, worker: Any) -> bool:
        return False

    def may_take_from_others(self, worker: Any) -> bool:
        return False

    def cause_of(self, lost: Lost) -> Cause:
        return cause_of(lost.exitcode, oom_kills_before=0, oom_kills_after=int(self.is_out_of_memory))

    def last_words(self, worker: Any) -> None:
        return None

    def has_memory_to_spare(self) -> bool:
        return True


class FakeWorker:
    def __init__(self, number: int, seat: int) -> None:
        self.number = WorkerNo(number)
        self.seat = SeatNo(seat)
        self.leases: dict[TicketNo, SlotNo | None] = {}
        self.is_dismissed = False
        self.released_locks = 0
        self.inbox: deque[tuple[Work | Resume | Tell | Withdraw, list[Memory]]] = deque()
        self.outbox: deque[tuple[Any, list[int]]] = deque()
        self.mapped: dict[SlotNo, Memory] = {}
        self.known_pid: int | None = 4711
        self.stem = SimpleNamespace(
            find=None, risk=None, busy_locks=(), holds_queue=False, holds_pipe=False, kind="grown"
        )
        self.board = FakeBoard()
        self.drawn = 0
        """Stands for the state of its generators: how many batches have been made from them."""

    def tidy_inbox(self) -> None:
        """Do what makes no batch: take over from another worker, redo what it had done, and say where this one is."""
        while self.inbox:
            message, _ = self.inbox[0]
            if isinstance(message, Resume):
                self.drawn = int(message.state)
            elif isinstance(message, Tell):
                self.outbox.append((Told(message.ticket, str(self.drawn).encode()), []))
            elif isinstance(message, Withdraw):
                pass  # it was begun before that was read
            elif message.is_replay:
                self.drawn += 1
            else:
                return
            self.inbox.popleft()

    def draw(self) -> int:
        self.drawn += 1
        return self.drawn - 1


class FakePool:
    """Workers that do their work when they are told to, and a memory that notices misuse."""

    is_abandoned = False
    is_waiting = False
    draws = False

    def __init__(self, workers: int) -> None:
        self.seats = count()
        self.workers = [FakeWorker(number, next(self.seats)) for number in range(workers)]
        self.hedges: dict[int, FakeWorker] = {}
        self.stem = SimpleNamespace(
            find=None, risk=None, busy_locks=(), holds_queue=False, holds_pipe=False, kind="grown"
        )
        self.open_descriptors: dict[int, Memory] = {}
        self.other_events: deque[Any] = deque()
        self.is_stopped = False
        self.is_lost: dict[FakeWorker, bool] = {}
        self.dying: deque[FakeWorker] = deque()
        self.given_up: list[Any] = []
        self._next_fd = count(100)

    def send(
        self, worker: FakeWorker, message: Work | Resume | Tell | Withdraw, descriptors: tuple[int, ...] = ()
    ) -> None:
        if worker not in self.is_lost:  # a channel to nobody takes anything
            worker.inbox.append((message, [self.open_descriptors[fd] for fd in descriptors]))
            worker.tidy_inbox()

    def put_back(self, happened: deque[Any]) -> None:
        self.other_events.extendleft(reversed(happened))

    def lose(self, worker: FakeWorker, *, pulse: Pulse = Pulse(Step.IDLE, None, -1)) -> None:  # noqa: B008
        """A worker ends; what it has sent is heard first."""
        worker.board.pulse = pulse
        worker.inbox.clear()
        self.other_events.extend(Heard(worker, *sent) for sent in worker.outbox)
        worker.outbox.clear()
        self.other_events.append(Lost(worker, 4711, -9))
        self.is_lost[worker] = True

    def replace(self, number: WorkerNo) -> FakeWorker:
        assert self.is_lost.pop(self.workers[number])
        self.workers[number] = FakeWorker(number, next(self.seats))
        return self.workers[number]

    def hedge(self, number: WorkerNo) -> FakeWorker:
        assert number not in self.hedges
        self.hedges[number] = FakeWorker(number, next(self.seats))
        return self.hedges[number]

    def give_up_stem(self, stem: Any) -> None:
        self.given_up.append(stem)

    def promote_hedge(self, number: WorkerNo) -> FakeWorker:
        stuck, self.workers[number] = self.workers[number], self.hedges.pop(number)
        return self.dismiss(stuck)

    def drop_hedge(self, number: WorkerNo) -> FakeWorker:
        return self.dismiss(self.hedges.pop(number))

    def dismiss(self, worker: FakeWorker) -> FakeWorker:
        """It may write until it is dead, and what it has said may be on its way."""
        self.is_lost.pop(worker, None)
        worker.is_dismissed = True
        self.dying.append(worker)
        if len(self.dying) % 2:  # what it had said before has been taken in already, or never is
            self.other_events.extend(Heard(worker, *sent) for sent in worker.outbox)
            worker.outbox.clear()
        return worker

    def let_die(self) -> None:
        """Those that were dismissed are dead now."""
        while self.dying:
            worker = self.dying.popleft()
            worker.inbox.clear()
            for _, made in worker.outbox:
                for fd in made:
                    del self.open_descriptors[fd]
            worker.outbox.clear()
            self.other_events.append(Gone(worker))

    def try_receive(self, worker: FakeWorker) -> Heard | None:
        if self.other_events:
            return None
        return Heard(worker, *worker.outbox.popleft()) if worker.outbox else None

    def wait(self, awaited: FakeWorker | None, *, deadline: float) -> list[Any]:
        events = list(self.other_events)
        self.other_events.clear()
        for worker in (*self.workers, *self.hedges.values()):
            while worker.outbox and awaited in (None, worker):
                events.append(Heard(worker, *worker.outbox.popleft()))
        self.is_waiting = not events  # an interruption of the wait itself loses nothing
        if self.is_waiting:
            raise WouldWait
        return events

    def hear_out(self, take: Any, *, deadline: float) -> None:
        pass

    def stop(self) -> None:
        self.is_stopped = True

    def take_work(self, worker: FakeWorker) -> tuple[Work, Memory | None]:
        """What a worker does with a message before it fetches: forget, map."""
        work, memories = worker.inbox.popleft()
        assert isinstance(work, Work)
        for slot in work.forget:
            worker.mapped.pop(slot, None)
        if work.slot is None:
            return work, None
        if memories:
            worker.mapped[work.slot] = memories[0]
        return work, worker.mapped[work.slot]

    def fill(self, worker: FakeWorker, *, size: int, is_large: bool, check: Callable[[Memory], None]) -> None:
        """The worker makes a batch of so many chunks: in its slot, or in memory of its own if that is too small."""
        work, memory = self.take_work(worker)
        size *= CHUNK
        made: list[int] = []
        if memory is None or memory.size < size:
            memory = Memory(size)
            made = [next(self._next_fd)]
            self.open_descriptors[made[0]] = memory
        check(memory)
        memory.content, memory.is_large = self.content_of(worker, work), is_large
        answer = Filled(work.ticket, Parcel(0, size, 0, 0), b"", None, size if made else 0)
        worker.outbox.append((answer, made))
        worker.tidy_inbox()

    def write_letter(self, worker: FakeWorker) -> None:
        """The worker makes a batch so small that it goes into the message."""
        work, _ = self.take_work(worker)
        body: Any = self.content_of(worker, work)
        worker.outbox.append((Filled(work.ticket, Parcel(0, 0, 0, 0), b"", body, 0), []))
        worker.tidy_inbox()

    def content_of(self, worker: FakeWorker, work: Work) -> Any:
        """What the batch holds: its index and, if the test asks for it, a draw."""
        drawn = worker.draw()
        return (work.index, drawn) if self.draws else work.index

    def keep_snapshot(self, worker: FakeWorker) -> None:
        work, _ = worker.inbox[0]
        assert isinstance(work, Work)
        worker.board.snapshot = Snapshot(work.ticket, str(worker.drawn).encode())

    def fail(self, worker: FakeWorker) -> None:
        work, _ = self.take_work(worker)
        error = KeyError(self.content_of(worker, work))
        worker.outbox.append((Failed(work.ticket, results.dump(error)), []))
        worker.tidy_inbox()

    def busy_workers(self) -> list[FakeWorker]:
        """Also those that have been dismissed, and do not know it yet."""
        return [worker for worker in (*self.workers, *self.hedges.values(), *self.dying) if worker.inbox]

    def close_descriptor(self, fd: int) -> None:
        del self.open_descriptors[fd]


class FakeBench:
    """Makes batches in the trainer."""

    def __init__(self, workers: int) -> None:
        self.parts = [FakeWorker(number, 100 + number) for number in range(workers)]
        for part in self.parts:
            part.bench = SimpleNamespace(stopwatch=SimpleNamespace(write=lambda: None))  # type: ignore[attr-defined]

    def part_of(self, ticket: Ticket) -> FakeWorker:
        return self.parts[ticket.worker]

    def replay(self, ticket: Ticket) -> None:
        self.part_of(ticket).draw()

    def make(self, ticket: Ticket) -> Callable[[], Batch]:
        content = (ticket.index, self.part_of(ticket).draw())
        return lambda: Batch(content, None)

    def take_mishaps(self, worker: WorkerNo) -> tuple[()]:
        return ()


def make_epoch(
    *,
    workers: int = 2,
    prefetch: int = 2,
    budget: int = 1000,
    by_ticket: bool = False,
    marks: Marks | None = None,
) -> tuple[Epoch, FakePool, Arena]:
    pool = FakePool(workers)
    arena = Arena(window=workers * prefetch, budget_bytes=budget * CHUNK)
    epoch = Epoch(
        pool,  # type: ignore[arg-type]
        arena,
        window=workers * prefetch,
        options=Options(),
        account=Account(Ledger()),
        witness=FakeWitness(),  # type: ignore[arg-type]
        by_ticket=by_ticket,
        marks=marks,
    )
    return epoch, pool, arena


class MadeUp:
    """While this lasts, the arena's memory is made up, and nothing is said to the user."""

    def __init__(self, pool: FakePool) -> None:
        kind = type("Segment", (FakeSegment,), {"open_descriptors": pool.open_descriptors})
        self._patches = [
            mock.patch.object(arena_module, "Segment", kind),
            mock.patch.object(arena_module, "read_batch", fake_read_batch),
            mock.patch.object(outcomes_module, "read_letter", lambda body, *_: Batch(body, None)),
            mock.patch.object(intake_module, "say_once"),
            mock.patch.object(happenings_module, "os", SimpleNamespace(close=pool.close_descriptor)),
            mock.patch.object(chronicle_module, "say_once"),
            mock.patch.object(chronicle_module, "say_counted"),
            mock.patch.object(chronicle_module, "say_report"),
            mock.patch.object(chronicle_module, "write_stacks", return_value=None),
        ]

    def __enter__(self) -> None:
        for patch in self._patches:
            patch.start()

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()


# What happens at a turn of the training loop: size of a batch, keep it, fork, drop the oldest.
TURNS = st.tuples(st.integers(1, 60), st.booleans(), st.booleans(), st.booleans())


class Trainer(RuleBasedStateMachine):
    @initialize(
        workers=st.integers(1, 3), prefetch=st.integers(1, 3), budget=st.sampled_from([1000, 1000, 300, 100, 40, 1])
    )
    def start(self, workers: int, prefetch: int, budget: int) -> None:
        self.epoch, self.pool, self.arena = make_epoch(workers=workers, prefetch=prefetch, budget=budget)
        self.budget_bytes = budget * CHUNK
        self.made_up = MadeUp(self.pool)
        self.made_up.__enter__()
        self.planned: list[Any] = []
        self.numbers = count()
        self.is_begun = False
        self.held: list[tuple[Any, Batch]] = []
        self.seen_by_a_child: set[Memory] = set()
        self.pool.draws = True
        self.given: Counter[int] = Counter()

    # --- what the user does

    @rule(length=st.integers(0, 12), break_off=st.sampled_from([False, False, False, True]))
    def begin_an_epoch(self, length: int, break_off: bool) -> None:
        if self.is_begun and self.delivered < self.length and not break_off:
            return
        indices_ = [next(self.numbers) for _ in range(length)]
        self.planned = []
        self.length = length
        self.drawn: list[int] = []

        def indices() -> Iterator[int]:
            for place, index in enumerate(indices_):
                worker = place % len(self.pool.workers)
                # In a calm run this is the how-manieth batch of its worker: that is what its generators are like then.
                self.planned.append((index, self.given[worker]))
                self.given[worker] += 1
                self.drawn.append(index)
                yield index

        self.epoch.begin(indices().__next__)
        self.delivered = 0
        self.is_begun = True

    @precondition(lambda self: self.is_begun)
    @rule(keep=st.booleans())
    def ask_for_a_batch(self, keep: bool) -> None:
        self.next_batch(keep=keep)

    @precondition(lambda self: self.is_begun)
    @rule(turns=st.lists(TURNS, min_size=1, max_size=8))
    def train_for_a_while(self, turns: list[tuple[int, bool, bool, bool]]) -> None:
        for size, keep, fork, drop in turns:
            for worker in self.pool.busy_workers():
                self.pool.fill(worker, size=size, is_large=True, check=self.may_write)
            self.next_batch(keep=keep)
            if fork:
                self.fork()
            if drop and self.held:
                self.held.pop(0)
            self.what_the_user_holds_is_unchanged()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop_a_batch(self, data: Any) -> None:
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    @rule()
    def fork(self) -> None:
        forks._forks.append(0)
        self.seen_by_a_child.update(batch.owner.memory for _, batch in self.held if batch.owner)

    # --- what workers do

    @precondition(lambda self: self.pool.busy_workers())
    @rule(data=st.data())
    def keep_a_snapshot(self, data: Any) -> None:
        self.pool.keep_snapshot(data.draw(st.sampled_from(self.pool.busy_workers())))

    @precondition(
        lambda self: self.is_begun and self.epoch._supervisor._recovery._in_a_row + len(self.pool.is_lost) < 4
    )
    @rule(data=st.data(), is_out_of_memory=st.booleans())
    def lose_a_worker(self, data: Any, is_out_of_memory: bool) -> None:
        witness: Any = self.epoch._supervisor._witness
        witness.is_out_of_memory = is_out_of_memory
        alive = [
            worker for worker in (*self.pool.workers, *self.pool.hedges.values()) if worker not in self.pool.is_lost
        ]
        if alive:
            self.pool.lose(data.draw(st.sampled_from(alive)))

    @precondition(lambda self: self.is_begun and not self.pool.hedges)
    @rule(data=st.data())
    def hedge_a_worker(self, data: Any) -> None:
        """It seems stuck, whatever it is at: another one does the same."""
        slow = [worker for worker in self.pool.workers if worker.leases and worker not in self.pool.is_lost]
        supervisor: Any = self.epoch._supervisor
        if slow:
            worker = data.draw(st.sampled_from(slow))
            supervisor.is_calm = False
            supervisor.hedging._hedged.clear()  # else there would be two in all
            if supervisor.hedging.can_help(worker):
                supervisor.hedging.start(worker)
                self.epoch._tickets.note_unsent()

    @rule()
    def the_dismissed_die(self) -> None:
        self.pool.let_die()

    @precondition(lambda self: self.pool.busy_workers())
    @rule(data=st.data())
    def write_a_letter(self, data: Any) -> None:
        self.pool.write_letter(data.draw(st.sampled_from(self.pool.busy_workers())))

    @precondition(lambda self: self.pool.busy_workers())
    @rule(data=st.data(), size=st.integers(1, 60), is_large=st.booleans())
    def fill_a_slot(self, data: Any, size: int, is_large: bool) -> None:
        worker = data.draw(st.sampled_from(self.pool.busy_workers()))
        self.pool.fill(worker, size=size, is_large=is_large, check=self.may_write)

    @precondition(lambda self: self.pool.busy_workers())
    @rule(data=st.data())
    def raise_an_error(self, data: Any) -> None:
        self.pool.fail(data.draw(st.sampled_from(self.pool.busy_workers())))

    # --- what must hold

    def may_write(self, memory: Memory) -> None:
        assert all(batch.owner is None or batch.owner.memory is not memory for _, batch in self.held)
        assert memory not in self.seen_by_a_child
        undelivered = [
            self.arena._segments[arrived.slot].memory  # type: ignore[attr-defined]
            for arrived in self.epoch._delivery._arrived.values()
            if isinstance(arrived, outcomes_module.Full)
        ]
        assert memory not in undelivered

    def next_batch(self, *, keep: bool) -> bool:
        """Ask for a batch, and check it; False at the end of the epoch."""
        expected = self.planned[self.delivered] if self.delivered < len(self.planned) else None
        spare = self.arena._spare
        try:
            batch = self.epoch.next_batch()
        except WouldWait:
            assert expected is not None
            assert self.pool.busy_workers() or self.pool.is_lost, "waits for an answer that nobody owes: stuck"
            return True
        except StopIteration:
            assert expected is None
            return False
        except KeyError as error:
            content, batch = error.args[0], None
        else:
            content = batch.content
        assert content == expected
        if batch is not None:
            if batch.owner is not None:
                assert self.arena._books.lent <= max(spare, self.arena._spare) or self.has_room_beside_window()
            if keep:
                self.held.append((expected, batch))
        self.delivered += 1
        # The sampler has been advanced exactly as often as torch advances it.
        assert len(self.drawn) == min(self.length, self.delivered + self.epoch._tickets.window)
        return True

    @invariant()
    def what_the_user_holds_is_unchanged(self) -> None:
        for content, batch in self.held:
            assert batch.owner is None or batch.owner.memory.content == content

    @invariant()
    def slots_are_lent_within_the_rule(self) -> None:
        books = self.arena._books
        assert books.lent <= SPARE or (books.lent <= MOST_LENT and books.lent_bytes <= self.budget_bytes)

    def has_room_beside_window(self) -> bool:
        """Whether all batches that the window is meant for find room beside what is lent."""
        window_bytes = self.arena._wanted_window * self.arena.batch_bytes
        return self.arena._books.lent_bytes + window_bytes <= self.budget_bytes

    @invariant()
    def there_is_one_descriptor_per_slot(self) -> None:
        everybody = (*self.pool.workers, *self.pool.hedges.values(), *self.pool.dying)
        on_their_way = sum(len(made) for worker in everybody for _, made in worker.outbox)
        on_their_way += sum(len(each.descriptors) for each in self.pool.other_events if isinstance(each, Heard))
        assert len(self.pool.open_descriptors) == len(self.arena._books) + on_their_way

    @invariant()
    def the_window_holds(self) -> None:
        assert self.epoch._tickets.dispatch._under_way <= self.epoch._tickets.window
        assert 1 <= self.epoch._tickets.dispatch.window <= self.epoch._tickets.window

    def teardown(self) -> None:
        if not hasattr(self, "made_up"):
            return
        try:
            self.finish()
        finally:
            self.made_up.__exit__()
            self.epoch.close()
            self.held.clear()

    def finish(self) -> None:
        """From any state: if workers answer, the epoch ends; then all memory that is not lent is free."""
        if not self.is_begun:
            return
        while self.next_batch(keep=False):
            for worker in self.pool.busy_workers():
                self.pool.fill(worker, size=1, is_large=True, check=self.may_write)
        # Outcomes of broken-off epochs may still be on their way.
        everybody = (*self.pool.workers, *self.pool.hedges.values())
        while self.pool.other_events or self.pool.dying or any(worker.inbox or worker.outbox for worker in everybody):
            self.pool.let_die()
            while self.pool.other_events:
                self.epoch._intake.react_to(self.pool.other_events.popleft())
            for worker in self.pool.busy_workers():
                self.pool.fill(worker, size=1, is_large=False, check=self.may_write)
            for worker in list(everybody):
                while worker.outbox:
                    self.epoch._intake.receive(Heard(worker, *worker.outbox.popleft()))
            everybody = (*self.pool.workers, *self.pool.hedges.values())
        books = self.arena._books
        self.arena._collect()
        assert self.epoch._tickets.dispatch._under_way == 0
        assert not any(worker.leases for worker in self.pool.workers)
        assert not books.slots_in(State.LEASED, State.FILLED, State.CONDEMNED)
        lent = {id(batch.owner) for _, batch in self.held if batch.owner}
        assert len(books.slots_in(State.LENT, State.SHARED)) == len(lent)
        self.held.clear()
        gc.collect(0)
        self.arena._collect()
        assert len(books.slots_in(State.FREE)) == len(books)
        assert books.total_bytes <= self.budget_bytes or len(books) == 1
        assert len(books) <= max(self.epoch._tickets.window + SPARE, self.arena._in_use.value)


TestTrainer = Trainer.TestCase
TestTrainer.settings = hypothesis_settings(deadline=None, max_examples=25, stateful_step_count=40)


# --- exact behaviour


@pytest.fixture
def made_up() -> Iterator[tuple[Epoch, FakePool, Arena]]:
    epoch, pool, arena = make_epoch()
    with MadeUp(pool):
        yield epoch, pool, arena
        epoch.close()


def fill_all(pool: FakePool, *, size: int = 10) -> None:
    while busy := pool.busy_workers():
        for worker in busy:
            pool.fill(worker, size=size, is_large=True, check=lambda _: None)


def test_as_many_batches_are_planned_ahead_as_torch_plans(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    epoch, pool, _ = made_up
    sampler = iter(range(9))
    epoch.begin(sampler.__next__)
    assert [work.index for work, _ in pool.workers[0].inbox] == [0, 2]
    assert [work.index for work, _ in pool.workers[1].inbox] == [1, 3]
    fill_all(pool)
    assert epoch.next_batch().content == 0
    assert next(sampler) == 5


def test_batches_leave_in_plan_order_whoever_is_first(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter(range(4)).__next__)
    for number in (1, 1, 0, 0):
        pool.fill(pool.workers[number], size=10, is_large=False, check=lambda _: None)
    assert [epoch.next_batch().content for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(StopIteration):
        epoch.next_batch()


def test_an_error_of_a_worker_says_where_it_was_and_the_epoch_goes_on(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter([[7, 8], [9]]).__next__)
    pool.fail(pool.workers[0])
    fill_all(pool)
    with pytest.raises(KeyError) as caught:
        epoch.next_batch()
    assert caught.value.__notes__ == ["antifreeze: worker 0 (pid 4711), batch 0, samples 7, 8"]
    assert epoch.next_batch().content == [9]


def test_an_error_that_cannot_be_rebuilt_is_told_as_text(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter(range(1)).__next__)
    work, _ = pool.take_work(pool.workers[0])
    pool.workers[0].outbox.append((Failed(work.ticket, b"not a pickle"), []))
    with pytest.raises(SampleFailed, match="could not be rebuilt here"):
        epoch.next_batch()


@pytest.mark.parametrize(
    ("exitcode", "kind", "words"),
    [
        (3, WorkerCrashed, r"DataLoader worker \(pid\(s\) 99\) exited unexpectedly with exit code 3"),
        (0, WorkerCrashed, "exited unexpectedly with exit code 0"),
        (None, WorkerCrashed, "an exit code that nobody could read"),
        (-signal.SIGSEGV, WorkerCrashed, r"DataLoader worker \(pid 99\) is killed by signal: Segmentation fault"),
        (-signal.SIGKILL, WorkerKilled, r"DataLoader worker \(pid 99\) is killed by signal: Killed"),
    ],
)
def test_a_sample_that_ends_two_workers_is_poison_and_ends_the_epoch_for_good(
    made_up: tuple[Epoch, FakePool, Arena], exitcode: int | None, kind: type[WorkerLost], words: str
) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter([[k, k + 1] for k in range(0, 18, 2)]).__next__)
    pool.fill(pool.workers[0], size=10, is_large=False, check=lambda _: None)
    epoch.next_batch()
    at_work = Pulse(Step.FETCHING, TicketNo(1), 1)
    pool.lose(pool.workers[1], pulse=at_work)
    with pytest.raises(WouldWait):
        epoch.next_batch()
    pool.lose(pool.workers[1], pulse=at_work)
    pool.other_events[-1] = Lost(pool.workers[1], 99, exitcode)
    for _ in range(2):
        with pytest.raises(kind, match=words) as caught:
            epoch.next_batch()
        error = caught.value
        assert type(error) is kind
        assert (error.worker, error.pid, error.exitcode, error.batch) == (1, 99, exitcode, 1)
        assert error.where == "worker 1, batch 1, sample 3"
        assert error.why.endswith("2 workers have ended there")
    assert pool.is_stopped


def test_a_worker_that_was_never_born_is_replaced_and_after_three_times_said_to_be_lost(
    made_up: tuple[Epoch, FakePool, Arena],
) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter(range(9)).__next__)
    for _ in range(2):
        pool.lose(pool.workers[0], pulse=Pulse(Step.STARTING, None, -1))
        with pytest.raises(WouldWait):
            epoch.next_batch()
    pool.lose(pool.workers[0], pulse=Pulse(Step.STARTING, None, -1))
    pool.other_events[-1] = Lost(pool.workers[0], None, None)
    with pytest.raises(WorkerCrashed, match="its stem ended before it was born"):
        epoch.next_batch()


def test_after_an_oom_kill_one_worker_fewer_is_at_work_at_a_time(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    epoch, pool, _ = made_up
    witness: Any = epoch._supervisor._witness
    witness.is_out_of_memory = True
    epoch.begin(iter(range(40)).__next__)
    pool.lose(pool.workers[1])
    seen, most = [], []
    while len(seen) < 40:
        try:
            seen.append(epoch.next_batch().content)
        except WouldWait:
            most.append(sum(bool(worker.leases) for worker in pool.workers))
            pool.fill(pool.busy_workers()[0], size=10, is_large=False, check=lambda _: None)
    assert seen == list(range(40))
    assert max(most[4:]) == 1  # what had been given out before is done


def test_a_worker_that_has_made_what_another_made_as_well_makes_room_for_one_to_work() -> None:
    epoch, pool, _ = make_epoch(by_ticket=True)
    first, second = pool.workers

    def fill(worker: FakeWorker) -> None:
        pool.fill(worker, size=10, is_large=False, check=lambda _: None)

    def hear() -> None:
        with contextlib.suppress(WouldWait):
            seen.append(epoch.next_batch().content)

    seen: list[int] = []
    with MadeUp(pool), contextlib.closing(epoch):
        epoch.begin(iter(range(9)).__next__, seed=7)
        fill(second)
        fill(second)
        while not second.inbox:
            hear()  # the second is given what waits behind the first one's batch
        epoch._supervisor.most_busy = 1
        fill(first)
        while second.inbox or len(seen) < 4:
            if second.inbox:
                fill(second)
            hear()
        fill(first)  # what the second one has made
        hear()
        while pool.busy_workers():
            fill(pool.busy_workers()[0])
            hear()
    assert seen == list(range(9))


def test_a_stem_that_cannot_rebuild_the_dataset_ends_the_epoch_with_its_reason(
    made_up: tuple[Epoch, FakePool, Arena],
) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter(range(9)).__next__)
    error = results.dump(CannotCross("dataset.x cannot be sent"))
    pool.other_events.append(StemSaid(pool.stem, Unfit(error)))
    for _ in range(2):
        with pytest.raises(CannotCross, match=r"dataset\.x"):
            epoch.next_batch()


def test_an_epoch_that_was_closed_says_so(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter(range(9)).__next__)
    epoch.close()
    with pytest.raises(RuntimeError, match="have been shut down"):
        epoch.next_batch()
    assert pool.is_stopped


def test_what_a_worker_cannot_say_is_a_bug_of_ours(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter(range(9)).__next__)
    pool.workers[0].outbox.append((Born(SeatNo(0), 1), []))
    with pytest.raises(InternalError, match="worker 0 said Born"):
        epoch.next_batch()


def test_a_slot_that_was_never_given_cannot_be_filled(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter(range(9)).__next__)
    work, _ = pool.take_work(pool.workers[0])
    pool.workers[0].outbox.append((Filled(work.ticket, Parcel(0, 0, 0, 0), b"", None, 0), []))
    with pytest.raises(InternalError, match="a slot that it did not have"):
        epoch.next_batch()


def test_the_window_shrinks_when_batches_are_too_large_for_the_budget(
    monkeypatch: pytest.MonkeyPatch, made_up: tuple[Epoch, FakePool, Arena]
) -> None:
    epoch, pool, arena = made_up
    said: list[str] = []
    monkeypatch.setattr(intake_module, "say_once", said.append)
    epoch.begin(iter(range(20)).__next__)
    fill_all(pool, size=400)  # of 1000
    assert [epoch.next_batch().content for _ in range(4)] == [0, 1, 2, 3]
    assert epoch._tickets.dispatch.window == 2
    assert sum(len(worker.inbox) for worker in pool.workers) == 2
    assert "prefetching 2 at a time instead of 4" in said[0]
    for expected in range(4, 20):
        fill_all(pool, size=400)
        assert epoch.next_batch().content == expected
        assert arena._books.total_bytes <= arena.budget_bytes


def look(epoch: Epoch, *, seconds: int) -> None:
    """The trainer waits, and nothing comes."""
    for _ in range(seconds):
        assert epoch._supervisor.look(passed_s=1.0) is None


def get_stuck(worker: FakeWorker) -> None:
    work, _ = worker.inbox[0]
    assert isinstance(work, Work)
    worker.board.pulse = Pulse(Step.FETCHING, work.ticket, 0)


@pytest.fixture
def marked() -> Iterator[tuple[Epoch, FakePool, Marks]]:
    """Workers that are asked where they are when a pass begins."""
    marks = Marks(2, every=0, is_telling=True)
    epoch, pool, _ = make_epoch(marks=marks)
    pool.draws = True
    with MadeUp(pool):
        yield epoch, pool, marks
        epoch.close()


def test_a_hedge_is_asked_where_it_is_too_for_it_may_be_the_one_that_is_kept(
    marked: tuple[Epoch, FakePool, Marks],
) -> None:
    epoch, pool, marks = marked
    seen: list[Any] = []
    epoch.begin(iter(range(9)).__next__)
    get_stuck(pool.workers[0])
    look(epoch, seconds=15)
    (hedge,) = pool.hedges.values()
    epoch.begin(iter(range(9, 18)).__next__, is_first=False)
    while not seen:
        for worker in (hedge, pool.workers[1]):
            while worker.inbox:
                pool.fill(worker, size=10, is_large=False, check=lambda _: None)
        with contextlib.suppress(WouldWait):
            seen.append(epoch.next_batch().content)
    assert seen == [(9, 2)]
    assert hedge in pool.workers
    assert marks.unknown == set()


def test_workers_say_where_they_are_when_they_have_done_all_of_the_pass_before(
    marked: tuple[Epoch, FakePool, Marks],
) -> None:
    epoch, pool, marks = marked
    epoch.begin(iter(range(20)).__next__)
    fill_all(pool, size=400)  # so large that two of the eight that are planned wait to be sent
    for _ in range(4):
        epoch.next_batch()
    epoch.begin(iter(range(20, 40)).__next__, is_first=False)
    seen: list[Any] = []
    while len(seen) < 8:
        fill_all(pool)
        with contextlib.suppress(WouldWait):
            seen.append(epoch.next_batch().content)
        if len(seen) == 3:
            assert [stand.place for stand in marks.stands] == [b"4", b"4"]
            pool.keep_snapshot(pool.workers[0])
            pool.lose(pool.workers[0])
    assert seen == [(20 + number, 4 + number // 2) for number in range(8)]


def test_a_hedge_that_is_never_born_is_given_up_with_its_stem_and_another_worker_is_hedged(
    made_up: tuple[Epoch, FakePool, Arena],
) -> None:
    epoch, pool, _ = made_up
    epoch.begin(iter(range(9)).__next__)
    for worker in pool.workers:
        get_stuck(worker)
    look(epoch, seconds=15)
    (hedge,) = pool.hedges.values()
    hedge.board.pulse, hedge.known_pid = Pulse(Step.STARTING, None, -1), None
    look(epoch, seconds=50)
    assert [*pool.hedges.values()] == [hedge], "a stem may take its time"
    look(epoch, seconds=20)
    assert pool.given_up == [hedge.stem]
    assert hedge.is_dismissed
    assert [*pool.hedges.values()] not in ([], [hedge])
    counts = epoch._chronicle._ledger.counts
    assert (counts[Kind.HEDGE_STARTED], counts[Kind.HEDGE_GIVEN_UP]) == (2, 1)


@pytest.mark.parametrize("samples", [0, 4])
def test_two_forked_workers_in_a_lock_at_the_first_sample_are_given_up(
    made_up: tuple[Epoch, FakePool, Arena], samples: int
) -> None:
    epoch, pool, _ = made_up
    supervisor: Any = epoch._supervisor
    supervisor._witness.seen = dataclasses.replace(supervisor._witness.seen, waits_in="lock")
    epoch.begin(iter(range(9)).__next__)
    for worker in pool.workers:
        worker.board.samples = samples
    get_stuck(pool.workers[0])
    look(epoch, seconds=20)
    (hedge,) = pool.hedges.values()
    get_stuck(hedge)
    look(epoch, seconds=10)
    if samples:  # other samples have passed: the fork is not to blame
        look(epoch, seconds=60)
    else:
        with pytest.raises(OnlyInProcess, match="two forked workers wait in a lock"):
            look(epoch, seconds=10)


def test_workers_that_wait_for_one_that_works_are_not_given_up(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    """It holds the lock: at the first sample it builds what all of them need."""
    epoch, pool, _ = made_up
    supervisor: Any = epoch._supervisor
    blocked = dataclasses.replace(supervisor._witness.seen, waits_in="lock")
    cpu_s = count()

    def look_at(workers: Any) -> dict[SeatNo, Seen]:
        works = dataclasses.replace(blocked, cpu_s=float(next(cpu_s)), waits_in=None)
        return {worker.seat: works if worker is pool.workers[0] else blocked for worker in workers}

    supervisor._witness.look_at = look_at
    epoch.begin(iter(range(9)).__next__)
    for worker in pool.workers:
        get_stuck(worker)
    look(epoch, seconds=20)
    (hedge,) = pool.hedges.values()
    get_stuck(hedge)
    look(epoch, seconds=200)


def test_nobody_goes_on_here_while_the_lock_cannot_be_had_here(made_up: tuple[Epoch, FakePool, Arena]) -> None:
    epoch, pool, _ = made_up
    supervisor: Any = epoch._supervisor
    supervisor._witness.seen = dataclasses.replace(supervisor._witness.seen, waits_in="lock")
    lock = threading.Lock()
    for worker in pool.workers:
        worker.stem.risk, worker.stem.busy_locks = "dataset.lock is a lock that is held now", (lock,)
    epoch.begin(iter(range(9)).__next__)
    for worker in pool.workers:
        get_stuck(worker)
    with lock:
        look(epoch, seconds=60)
    with pytest.raises(OnlyInProcess, match="a lock that is held now"):
        look(epoch, seconds=1)


def test_what_is_left_of_passes_before_is_drawn_once_and_first_by_whoever_goes_on_here(
    made_up: tuple[Epoch, FakePool, Arena],
) -> None:
    epoch, _, _ = made_up
    bench: Any = FakeBench(2)
    epoch._make_bench = lambda: bench
    epoch._stall_after_s = None  # type: ignore[assignment]  # nobody watches
    for first in (0, 8, 16):  # of the first pass four batches have been sent, of the second none
        epoch.begin(iter(range(first, first + 8)).__next__, is_first=not first)
    inline = epoch.hand_over(OnlyInProcess("made up"))
    assert inline is not None
    seen = [inline.next_batch().content for _ in range(8)]
    inline.begin(iter(range(24, 28)).__next__, is_first=False)
    seen += [inline.next_batch().content for _ in range(4)]
    assert seen == [(16 + number, 4 + number // 2) for number in range(12)]


@pytest.mark.parametrize("most", [100, 3], ids=["all is made again", "too much to be made again"])
def test_a_worker_that_takes_over_without_a_snapshot_is_recorded_with_the_reason(
    made_up: tuple[Epoch, FakePool, Arena], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(history_module, "MOST_INDICES", most)
    monkeypatch.setattr(orders_module, "LOOK_EVERY", 1)
    epoch, pool, _ = made_up
    pool.draws = True
    epoch.begin(iter(range(40)).__next__)
    seen = []
    for _ in range(20):
        fill_all(pool)
        seen.append(epoch.next_batch().content)
    pool.lose(pool.workers[1])
    while len(seen) < 40:
        fill_all(pool)
        with contextlib.suppress(WouldWait):
            seen.append(epoch.next_batch().content)
    assert [index for index, _ in seen] == list(range(40))
    drawn = [drawn for index, drawn in seen if index % 2]
    assert (drawn == list(range(20))) == (most == 100)
    (record,) = (record for record in epoch._chronicle._ledger if record.kind is Kind.NO_SNAPSHOT)
    assert ("are made again" if most == 100 else "begin anew") in record.what
    assert "more than 63 KiB, are hundreds" in record.what


def test_what_is_in_quarantine_is_told_to_whoever_may_draw_another_sample(
    made_up: tuple[Epoch, FakePool, Arena],
) -> None:
    epoch, pool, _ = made_up
    epoch._tickets._orders.quarantined |= {5, np.int64(7), "a key"}
    epoch.begin(iter([[4, 5], [6]]).__next__)
    (first, _), (second, _) = pool.workers[0].inbox[0], pool.workers[1].inbox[0]
    assert (first.leave_out, sorted(first.quarantined)) == ((1,), [5, 7])
    assert (second.leave_out, sorted(second.quarantined)) == ((), [5, 7])


def test_a_worker_that_comes_back_while_it_is_looked_at_is_not_reported_once_more(
    made_up: tuple[Epoch, FakePool, Arena],
) -> None:
    epoch, pool, _ = made_up
    witness: Any = epoch._supervisor._witness
    witness.seen = dataclasses.replace(witness.seen, waits_in="disk")
    epoch.begin(iter(range(9)).__next__)
    for worker in pool.workers:
        get_stuck(worker)
    look(epoch, seconds=15)

    def see_it_move(workers: Any) -> dict[SeatNo, Seen]:
        pool.workers[0].board.pulse = Pulse(Step.IDLE, TicketNo(2), 0)
        return {worker.seat: witness.seen for worker in workers}

    witness.look_at = see_it_move
    look(epoch, seconds=1)
    assert epoch._chronicle._ledger.counts[Kind.STALL] == len(pool.workers)
