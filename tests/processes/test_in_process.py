"""What no worker can load is loaded in the trainer; so is the rest of an epoch after a fault of ours. Nothing is lost."""

import asyncio
import copy
import errno
import queue
import random
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from antifreeze.engine import epoch
from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.flow.delivery import Delivery
from antifreeze.engine.orders import Orders
from antifreeze.engine.outcomes import Outcomes
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.tickets import Tickets
from antifreeze.errors import CannotCross, InternalError
from antifreeze.observe.accounts import account_of
from antifreeze.observe.ledger import Kind
from drop_in.harness import Way, our_class
from drop_in.kinds import as_it_is
from processes.datasets import Numbers
from user_scripts import Ended

pytestmark = pytest.mark.usefixtures("not_for_torch")

LENGTH = 24
DOUBLED = [[2 * k for k in range(n, n + 4)] for n in range(0, LENGTH, 4)]
PATIENCE_S = 10


class Served(Numbers):
    """A thread answers, over queues."""

    def __init__(self) -> None:
        super().__init__(LENGTH)
        self.requests: queue.Queue[int | None] = queue.Queue()
        self.answers: queue.Queue[int] = queue.Queue()
        self.thread_of_it().start()

    def thread_of_it(self) -> threading.Thread:
        return threading.Thread(target=self.serve, name="server", daemon=True)

    def serve(self) -> None:
        while (number := self.requests.get()) is not None:
            self.answers.put(2 * number)

    def __getitem__(self, index: int) -> int:
        self.requests.put(index)
        return self.answers.get(timeout=PATIENCE_S)

    def close(self) -> None:
        self.requests.put(None)


class ServedByFunction(Served):
    """The thread knows the queues, and nothing of the dataset."""

    def thread_of_it(self) -> threading.Thread:
        return threading.Thread(target=serve, args=(self.requests,), kwargs={"answers": self.answers}, daemon=True)


def serve(requests: "queue.Queue[int | None]", answers: "queue.Queue[int]") -> None:
    while (number := requests.get()) is not None:
        answers.put(2 * number)


class Looped(Numbers):
    """An event loop runs in a thread."""

    def __init__(self) -> None:
        super().__init__(LENGTH)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="loop", daemon=True)
        self.thread.start()

    async def read(self, index: int) -> int:
        await asyncio.sleep(0)
        return 2 * index

    def __getitem__(self, index: int) -> int:
        return asyncio.run_coroutine_threadsafe(self.read(index), self.loop).result(PATIENCE_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)
        self.loop.close()


@pytest.fixture(params=[Served, ServedByFunction, Looped])
def dataset(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param()
    yield made
    made.close()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(PATIENCE_S)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Options for workers that wait in vain: they are given up soon."""
    monkeypatch.setattr(epoch, "SLICE_S", 0.2)
    return {"stall_after": 0.5}


def test_a_dataset_that_lives_by_a_thread_is_loaded_in_the_trainer(
    way: Way,
    dataset: Any,
    usage: Callable[[], list[dict[str, Any]]],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    impatient: dict[str, float],
) -> None:
    monkeypatch.setattr("antifreeze.observe.say._said", set())
    loader = way.make(dataset, batch_size=4, **impatient)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == DOUBLED
    is_forked = way.name == "grown"  # then workers have been tried
    counts = account_of(loader).ledger.counts
    assert (counts[Kind.RISKY_FORK], counts[Kind.IN_PROCESS]) == (int(is_forked), 2)
    assert [record["stem"] for record in usage()] == ["grown" if is_forked else "in-process", "in-process"]
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("antifreeze:")]
    assert len(said) == (3 if is_forked else 1)
    assert "AF101 fork-after-threads" in said[-1] and "antifreeze.per_worker" in said[0]


def test_kept_workers_are_kept_in_the_trainer_as_well(dataset: Any, impatient: dict[str, float]) -> None:
    loader = our_class()(dataset, batch_size=4, num_workers=2, persistent_workers=True, **impatient)
    for _ in zip(loader, range(2), strict=False):  # and no further
        pass
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == DOUBLED
    counts = account_of(loader).ledger.counts
    assert (counts[Kind.RISKY_FORK], counts[Kind.IN_PROCESS]) == (1, 1)
    del loader


class OnlyPuts(Numbers):
    """Tells a thread what it does, never waits for it, and keeps what belongs to one worker."""

    def __init__(self) -> None:
        super().__init__(LENGTH)
        self.told: queue.Queue[int | None] = queue.Queue()
        self.made = 0
        self.thread = threading.Thread(target=self.drain, daemon=True)
        self.thread.start()

    def drain(self) -> None:
        while self.told.get() is not None:
            pass

    def __getitem__(self, index: int) -> tuple[int, int]:  # type: ignore[override]
        self.made += 1
        self.told.put(index)
        return index, self.made


def test_a_dataset_that_only_tells_a_thread_something_has_workers_of_its_own() -> None:
    dataset = OnlyPuts()
    try:
        loader = our_class()(dataset, batch_size=2, num_workers=2, multiprocessing_context="fork")
        made = [each.tolist() for _, each in loader]
        assert made == [[n, n + 1] for n in range(1, LENGTH // 2, 2) for _ in range(2)]
        assert dataset.made == 0
        counts = account_of(loader).ledger.counts
        assert counts[Kind.RISKY_FORK] == 1 and Kind.IN_PROCESS not in counts
    finally:
        dataset.told.put(None)
        dataset.thread.join(PATIENCE_S)


class Restarting(Served):
    """Knows how to be sent to a worker: its thread is started there, when it is needed."""

    def __getstate__(self) -> dict[str, Any]:
        return {"length": self.length}

    def __getitem__(self, index: int) -> int:
        if not hasattr(self, "requests"):
            self.__init__()  # type: ignore[misc]
        return super().__getitem__(index)


@pytest.mark.long(but=1)
def test_a_dataset_that_starts_its_thread_where_it_arrives_has_workers_if_it_is_sent(
    way: Way, impatient: dict[str, float]
) -> None:
    dataset = Restarting()
    try:
        loader = way.make(dataset, batch_size=4, **impatient)
        assert [batch.tolist() for batch in loader] == DOUBLED
        assert (Kind.IN_PROCESS in account_of(loader).ledger.counts) is (way.name == "grown")
    finally:
        dataset.close()


def test_a_queue_that_no_thread_serves_is_no_reason() -> None:
    dataset = Numbers(LENGTH)
    dataset.queue = queue.Queue()  # type: ignore[attr-defined]
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        loader = our_class()(dataset, batch_size=4, num_workers=2)
        assert len(list(loader)) == LENGTH // 4
        assert not account_of(loader).ledger
    finally:
        end.set()
        thread.join(PATIENCE_S)


def test_an_unmodified_script_finishes(run_script: Callable[..., Ended]) -> None:
    ended = run_script(
        textwrap.dedent(
            """
            import queue, threading
            from torch.utils.data import DataLoader, Dataset

            class Served(Dataset):
                def __init__(self):
                    self.asked, self.told = queue.Queue(), queue.Queue()
                    threading.Thread(target=self.serve, daemon=True).start()

                def serve(self):
                    while True:
                        self.told.put(2 * self.asked.get())

                def __len__(self):
                    return 8

                def __getitem__(self, index):
                    self.asked.put(index)
                    return self.told.get()

            print([batch.tolist() for batch in DataLoader(Served(), batch_size=4, num_workers=2)])
            """
        ),
        via="antifreeze",
        env={"ANTIFREEZE_STALL_AFTER": "1"},
    ).check()
    assert ended.stdout.strip() == "[[0, 2, 4, 6], [8, 10, 12, 14]]"


class Signalled(Numbers):
    """A thread answers, without a queue: whether a worker would miss it is not known before."""

    def __init__(self) -> None:
        super().__init__(LENGTH)
        self.asked, self.answered = threading.Event(), threading.Event()
        self.number: int | None = None
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while self.asked.wait():
            self.asked.clear()
            if self.number is None:
                return
            self.number *= 2
            self.answered.set()

    def __getitem__(self, index: int) -> int | None:
        self.answered.clear()
        self.number = index
        self.asked.set()
        self.answered.wait()
        return self.number

    def close(self) -> None:
        self.number = None
        self.asked.set()
        self.thread.join(PATIENCE_S)


def test_workers_that_turn_out_to_wait_for_a_thread_are_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTIFREEZE_DIR", str(tmp_path))
    monkeypatch.setattr(epoch, "SLICE_S", 0.2)
    dataset = Signalled()
    try:
        loader = our_class()(dataset, batch_size=4, num_workers=2, stall_after=0.5)
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == DOUBLED
        counts = account_of(loader).ledger.counts
        assert (counts[Kind.RISKY_FORK], counts[Kind.IN_PROCESS]) == (1, 2)
        assert counts[Kind.STALL] >= 1
    finally:
        dataset.close()


# --- a fault of ours


class Drawing(Numbers):
    """Random samples of every kind."""

    def __init__(self) -> None:
        super().__init__(4 * LENGTH)
        self.generator = torch.Generator().manual_seed(1)

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(2), random.random(), np.random.rand(), torch.rand(1, generator=self.generator)


class Large(Drawing):
    """So large that batches lie in slots."""

    def __getitem__(self, index: int) -> Any:
        return *super().__getitem__(index), torch.rand(5000)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for number in range(info.id, 4 * LENGTH, info.num_workers):
            yield number, torch.rand(2), random.random()


def all_of(way: Way, dataset: Any, **options: Any) -> tuple[list[Any], Any]:
    torch.manual_seed(3)
    loader = way.make(dataset, batch_size=4, **options)
    return list(loader), account_of(loader).ledger


def break_down(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception, *, at: int) -> None:
    """Let a function of ours fail once, when it is called so often."""
    original, calls = getattr(owner, name), iter(range(1000))

    def failing(*arguments: Any, **more: Any) -> Any:
        if next(calls) == at:
            raise copy.copy(error)  # one that nobody holds with its traceback
        return original(*arguments, **more)

    monkeypatch.setattr(owner, name, failing)


def assert_same(one: Any, other: Any) -> None:
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        assert all(map(torch.equal, mine, theirs))


FAULTS = {
    "a slot": (Arena, "lease", OSError(errno.EMFILE, "Too many open files"), 4),
    "an invariant": (Delivery, "arrive", InternalError("two outcomes"), 0),
    "a batch that comes": (Outcomes, "of_batch", InternalError("a slot that it did not have"), 0),
    "sending": (Orders, "give", OSError(errno.ENOMEM, "Cannot allocate memory"), 4),
    "a look": (Pool, "try_receive", KeyError("a table of ours"), 0),
}
"""What fails, with which error, and when at the earliest."""


@pytest.mark.long(but=2)
@pytest.mark.parametrize(("fault", "at"), [(fault, at) for fault in FAULTS for at in (FAULTS[fault][3], 12)])
def test_after_a_fault_of_ours_the_rest_is_loaded_in_the_trainer_bit_for_bit(
    fault: str, at: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    way = Way("grown", our_class(), "fork")
    expected, calm = all_of(way, Drawing())
    assert Kind.IN_PROCESS not in calm.counts
    monkeypatch.setattr("antifreeze.observe.say._said", set())
    owner, name, error, _ = FAULTS[fault]
    break_down(monkeypatch, owner, name, error, at=at)
    got, ledger = all_of(way, Drawing())
    assert_same(got, expected)
    assert ledger.counts[Kind.IN_PROCESS] == 1
    assert "the rest of this epoch is loaded in this process" in capfd.readouterr().err


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dataset", [Large, Stream])
@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}], ids=["", "kept"])
def test_so_are_large_batches_and_streams(
    dataset: type, options: dict[str, Any], way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = all_of(way, dataset(), **options)
    break_down(monkeypatch, Arena, "lease", OSError(errno.EMFILE, "Too many open files"), at=9)
    got, ledger = all_of(way, dataset(), **options)
    assert_same(got, expected)
    assert ledger.counts[Kind.IN_PROCESS] == 1


class Kept(Dataset[Any]):
    """Gives what it keeps, and a buffer that it uses again."""

    def __init__(self) -> None:
        self.samples = [{"label": n, "image": np.full((3, 9000), n, "f4"), "small": np.zeros(3)} for n in range(LENGTH)]
        self.buffer = torch.zeros(50)
        self.seen = torch.zeros(LENGTH).share_memory_()
        self.kind = type("Label", (), {})  # which plain pickle does not find

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return self.samples[index], self.buffer.fill_(index), self.seen, self.kind, self.kind()


@pytest.mark.parametrize("at", [5, 12])
def test_what_the_dataset_keeps_is_not_given_away(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may change its batches, as it may those of workers, and the dataset its buffers; what is shared, is."""
    break_down(monkeypatch, Arena, "lease", OSError(errno.EMFILE, "Too many open files"), at=at)
    dataset = Kept()
    loader = our_class()(dataset, batch_size=None, num_workers=2, collate_fn=as_it_is)
    for _ in range(2):
        batches = list(loader)
        for number, (sample, buffer, seen, kind, one) in enumerate(batches):
            assert (sample.pop("label"), int(buffer[0]), float(sample["small"].sum())) == (number, number, 0)
            assert (sample["image"] == number).all()
            assert kind is dataset.kind and type(one) is kind
            sample["image"] += 1
            sample["small"] += 1
            seen[number] += 1
    assert dataset.seen.tolist() == [2] * LENGTH
    assert account_of(loader).ledger.counts[Kind.IN_PROCESS] == 1


class Refusing:
    """Cannot be sent."""

    def __reduce__(self) -> Any:
        raise KeyError("not this")


class SometimesRefusing(Numbers):
    def __getitem__(self, index: int) -> Any:
        return Refusing() if index == 5 else index


def test_what_a_worker_could_not_send_is_an_error_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    break_down(monkeypatch, Arena, "lease", OSError(errno.EMFILE, "Too many open files"), at=5)
    batches = iter(our_class()(SometimesRefusing(8), batch_size=None, num_workers=2))
    assert [next(batches) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(CannotCross, match="made a batch that cannot be sent"):
        next(batches)
    assert list(batches) == [6, 7]


def test_out_of_order_every_batch_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    break_down(monkeypatch, Arena, "lease", OSError(errno.EMFILE, "Too many open files"), at=9)
    got, _ = all_of(Way("grown", our_class(), "fork"), Drawing(), in_order=False)
    assert sorted(index for batch in got for index in batch[0].tolist()) == list(range(4 * LENGTH))


def test_kept_workers_are_started_anew_for_the_next_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    break_down(monkeypatch, Arena, "lease", OSError(errno.EMFILE, "Too many open files"), at=5)
    loader = our_class()(Numbers(LENGTH), batch_size=4, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert [k for batch in loader for k in batch.tolist()] == list(range(LENGTH))
    assert account_of(loader).ledger.counts == {Kind.IN_PROCESS: 1}
    assert all(worker.is_alive() for worker in loader._iterator._workers)
    del loader


def order_of(loader_class: Any, *, passes: int = 1, **options: Any) -> list[Any]:
    torch.manual_seed(5)
    loader = loader_class(Numbers(LENGTH), batch_size=4, num_workers=2, **{"shuffle": True, **options})
    return [[batch.tolist() for batch in loader] for _ in range(passes)]


@pytest.mark.fallback
def test_after_a_fault_where_a_pass_begins_torchs_own_iterator_takes_over(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the draws undone that were made until then."""
    monkeypatch.setattr("antifreeze.observe.say._said", set())
    break_down(monkeypatch, Tickets, "send", InternalError("a table"), at=0)
    assert order_of(our_class()) == order_of(torch.utils.data.DataLoader)
    assert "runs on torch's own iterator: beginning a pass failed: InternalError('a table')" in capfd.readouterr().err


@pytest.mark.fallback
def test_so_it_does_in_a_later_pass_of_kept_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    break_down(monkeypatch, Tickets, "begin", InternalError("a table"), at=1)
    passes = order_of(our_class(), passes=3, persistent_workers=True)
    assert [sorted(index for batch in each for index in batch) for each in passes] == [list(range(LENGTH))] * 3
    assert len(set(map(str, passes))) == 3


@pytest.mark.fallback
def test_so_it_does_where_kept_workers_cannot_be_started_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("antifreeze.observe.say._said", set())
    break_down(monkeypatch, Arena, "lease", OSError(errno.EMFILE, "Too many open files"), at=5)
    break_down(monkeypatch, Pool, "_ask_for", InternalError("a table"), at=2)
    passes = order_of(our_class(), passes=3, persistent_workers=True)
    assert [sorted(index for batch in each for index in batch) for each in passes] == [list(range(LENGTH))] * 3
    assert len(set(map(str, passes))) == 3
    said = capfd.readouterr().err
    assert "runs on torch's own iterator: starting workers again failed: InternalError('a table')" in said


def test_after_a_fault_kept_workers_that_are_new_leave_the_order_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    break_down(monkeypatch, Arena, "lease", OSError(errno.EMFILE, "Too many open files"), at=5)
    kept = {"passes": 3, "persistent_workers": True}
    assert order_of(our_class(), **kept) == order_of(torch.utils.data.DataLoader, **kept)


@pytest.mark.fallback
def test_a_sampler_that_cannot_begin_again_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's iterator would lose what ours has drawn from it."""
    break_down(monkeypatch, Tickets, "send", InternalError("a table"), at=0)
    with pytest.raises(InternalError, match="a table"):
        order_of(our_class(), shuffle=None, sampler=iter(range(LENGTH)))


def stop_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third batch on, no ticket is planned ahead."""
    original, calls = Tickets.plan_one, iter(range(1000))
    monkeypatch.setattr(Tickets, "plan_one", lambda self: next(calls) < 6 and original(self))


def test_an_epoch_that_would_end_too_early_is_an_error_where_nothing_may_fall_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_planning(monkeypatch)
    batches = iter(our_class()(Numbers(LENGTH), num_workers=2))
    assert [int(next(batches)) for _ in range(6)] == list(range(6))
    for _ in range(2):
        with pytest.raises(InternalError, match="after 6 batches, and the sampler has more"):
            next(batches)


@pytest.mark.fallback
@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"seeding": "ticket"}], ids=str)
def test_else_the_rest_of_it_is_loaded_in_the_trainer(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    stop_planning(monkeypatch)
    loader = our_class()(Numbers(LENGTH), num_workers=2, **options)
    assert [int(batch) for batch in loader] == list(range(LENGTH))
    assert account_of(loader).ledger.counts == {Kind.IN_PROCESS: 1}


def test_a_ticket_that_was_planned_and_never_came_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Tickets._expect
    monkeypatch.setattr(Tickets, "_expect", lambda self, ticket: ticket.number == 9 or original(self, ticket))
    got = []
    with pytest.raises(InternalError, match="1 of the 24 batches that were planned have not been delivered"):
        got.extend(int(batch) for batch in our_class()(Numbers(LENGTH), num_workers=2))
    assert got == [number for number in range(LENGTH) if number != 9]


def test_a_stream_that_cannot_be_read_again_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    break_down(monkeypatch, Arena, "lease", OSError(errno.EMFILE, "Too many open files"), at=9)
    with pytest.raises(OSError, match="Too many open files"):
        list(our_class()(Stream(), batch_size=4, num_workers=2, replay=False))


def test_an_error_of_the_user_is_no_fault_of_ours() -> None:
    class Failing(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 9:
                raise OSError("no such file")
            return index

    loader = our_class()(Failing(LENGTH), batch_size=4, num_workers=2)
    iterator = iter(loader)
    assert len([next(iterator), next(iterator)]) == 2
    with pytest.raises(OSError, match="no such file"):
        next(iterator)
    assert len(list(iterator)) == LENGTH // 4 - 3
    assert Kind.IN_PROCESS not in account_of(loader).ledger.counts
