"""A worker goes on where another one was, also where user code does something only once in each worker."""

import os
import random
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from antifreeze.engine.wire.messages import dump_index
from antifreeze.engine.worker import bench as bench_module
from antifreeze.engine.worker.place import to_try_out
from antifreeze.policy import Policy
from worker.benches import Bench


@pytest.fixture(autouse=True)
def a_snapshot_before_every_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "SNAPSHOT_S", 0.0)


class Drawn:
    """Draws for each sample, and does something beforehand when it is first used in a worker."""

    def __init__(self) -> None:
        self.is_used = False
        self.own = random.Random(1)

    def __getitem__(self, index: int) -> tuple[int, float]:
        if not self.is_used:
            self.is_used = True
            self.begin()
        return index, self.draw()

    def begin(self) -> None:
        raise NotImplementedError

    def draw(self) -> float:
        return self.own.random()


class PutsAnotherInItsPlace(Drawn):
    def begin(self) -> None:
        self.own = random.Random(2)


class SeedsItsOwn(Drawn):
    def begin(self) -> None:
        self.own.seed(3)


class SeedsWhatAllShare(Drawn):
    def begin(self) -> None:
        random.seed(4)
        np.random.seed(4)
        torch.manual_seed(4)

    def draw(self) -> float:
        return random.random() + np.random.rand() + torch.rand(()).item()


TICKETS = [[0, 1], [2, 3], [4, 5], [6, 7]]


def drawn(bench: Bench, tickets: list[list[int]]) -> list[Any]:
    return [bench.batch(indices)[1].tolist() for indices in tickets]


@pytest.mark.parametrize("lost_at", range(4))
@pytest.mark.parametrize("dataset", [PutsAnotherInItsPlace, SeedsItsOwn, SeedsWhatAllShare])
def test_what_is_done_once_in_a_worker_is_done_before_generators_get_their_state(
    dataset: type[Drawn], lost_at: int
) -> None:
    with closing(Bench(dataset())) as calm:
        expected = drawn(calm, TICKETS)
    with closing(Bench(dataset())) as lost:
        drawn(lost, TICKETS[: lost_at + 1])
        snapshot = lost.board.latest()
    assert snapshot is not None and snapshot.ticket == lost_at
    with closing(Bench(dataset())) as successor:
        successor.bench.resume(snapshot.state)
        successor.skip_to(lost_at)
        assert drawn(successor, TICKETS[lost_at:]) == expected[lost_at:]


class KeepsItByProcess(Drawn):
    """As in `_GENERATORS[os.getpid()]`."""

    def __init__(self) -> None:
        super().__init__()
        self.by_process: dict[int, random.Random] = {}

    def begin(self) -> None:
        self.by_process[os.getpid()] = random.Random(5)

    def draw(self) -> float:
        return self.by_process[os.getpid()].random()


def test_what_is_kept_by_the_number_of_the_process_is_found_in_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Bench(KeepsItByProcess())) as lost:
        drawn(lost, TICKETS[:3])
        snapshot = lost.board.latest()
        expected = drawn(lost, TICKETS[3:])
    assert snapshot is not None
    with closing(Bench(KeepsItByProcess())) as successor:
        number = os.getpid() + 1
        monkeypatch.setattr(os, "getpid", lambda: number)
        successor.bench.resume(snapshot.state)
        successor.skip_to(2)
        assert drawn(successor, TICKETS[2:])[1:] == expected


class UsesUp(Dataset[Any]):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [indices.pop(0) for _ in range(len(indices))]


def test_the_first_batch_is_made_of_its_own_samples() -> None:
    with closing(Bench(UsesUp())) as lost:
        lost.batch([0, 1])
        lost.batch([2, 3])
        snapshot = lost.board.latest()
    assert snapshot is not None
    with closing(Bench(UsesUp())) as successor:
        successor.bench.resume(snapshot.state)
        assert successor.batch([4, 5]).tolist() == [4, 5]


class Slow(Dataset[int]):
    """Takes longer for a sample than anybody has patience for, and notes what it was asked for."""

    def __init__(self) -> None:
        self.fetched: list[int] = []

    def __getitem__(self, index: int) -> int:
        self.fetched.append(index)
        return index


def test_of_samples_that_take_long_one_is_tried_out_and_none_that_is_in_quarantine() -> None:
    with closing(Bench(Slow())) as lost:
        lost.batch([0, 1, 2])
        lost.batch([3])
        snapshot = lost.board.latest()
    assert snapshot is not None
    dataset = Slow()
    with closing(Bench(dataset, Policy("skip"))) as successor:
        successor.bench.resume(snapshot.state)
        assert successor.batch([4, 5, 6], leave_out=(0,), quarantined=(4, 0)).tolist() == [5, 6]
    assert dataset.fetched == [1, 5, 6]


class ChangesItsData(Dataset[Any]):
    """Right where each worker fetches a sample once, as in a pass without replacement."""

    def __init__(self) -> None:
        self.images = [np.full(2, float(index)) for index in range(8)]

    def __getitem__(self, index: int) -> Any:
        image = self.images[index]
        image += 10
        return index, image[0]


class KeepsWhatItDrew(Dataset[Any]):
    """As `functools.cache` does."""

    def __init__(self) -> None:
        self.kept: dict[int, float] = {}

    def __getitem__(self, index: int) -> tuple[int, float]:
        if index not in self.kept:
            self.kept[index] = random.random()
        return index, self.kept[index]


class DrawsOnceForAll(Drawn):
    """All samples depend on a number that is drawn at the first one."""

    def begin(self) -> None:
        self.shift = random.random()

    def draw(self) -> float:
        return self.shift + random.random()


@pytest.mark.parametrize("lost_at", range(4))
@pytest.mark.parametrize("dataset", [ChangesItsData, KeepsWhatItDrew, DrawsOnceForAll])
def test_nothing_that_is_to_be_delivered_is_fetched_twice(dataset: type[Any], lost_at: int) -> None:
    with closing(Bench(dataset())) as calm:
        expected = drawn(calm, TICKETS)
    with closing(Bench(dataset())) as lost:
        drawn(lost, TICKETS[: lost_at + 1])
        snapshot = lost.board.latest()
    assert snapshot is not None
    with closing(Bench(dataset())) as successor:
        successor.bench.resume(snapshot.state)
        successor.skip_to(lost_at)
        assert drawn(successor, TICKETS[lost_at:]) == expected[lost_at:]


def test_one_that_takes_over_from_one_that_took_over_does_the_same_first() -> None:
    with closing(Bench(SeedsItsOwn())) as lost:
        expected = drawn(lost, TICKETS)
        snapshot = lost.board.latest()
    for _ in range(2):
        assert snapshot is not None
        with closing(Bench(SeedsItsOwn())) as successor:
            successor.bench.resume(snapshot.state)
            successor.skip_to(3)
            assert drawn(successor, TICKETS[3:]) == expected[3:]
            snapshot = successor.board.latest()


@pytest.mark.parametrize("index", [(0, 1), np.arange(2), torch.randperm(3000).split(2)[0] * 0, [np.int64(0)] * 100])
def test_indices_of_any_kind_are_tried_out(index: Any) -> None:
    with closing(Bench(SeedsItsOwn())) as lost:
        lost.batch(index)
        expected = drawn(lost, [[2, 3], [4, 5]])
        snapshot = lost.board.latest()
    assert snapshot is not None
    with closing(Bench(SeedsItsOwn())) as successor:
        successor.bench.resume(snapshot.state)
        successor.skip_to(2)
        assert drawn(successor, [[4, 5]]) == expected[1:]


def test_of_a_large_index_little_is_kept() -> None:
    assert to_try_out(torch.randperm(100_000).split(64)[3], batched=True)
    assert to_try_out([str(n) * 1000 for n in range(9)], batched=True) == dump_index(["0" * 1000])
    assert to_try_out(["x" * 10_000], batched=True) == to_try_out(object(), batched=True) == b""


@pytest.mark.parametrize(("long_s", "latest"), [(bench_module.LONG_S, 3), (1e-15, 1)], ids=["quick", "slow"])
def test_what_takes_long_is_kept_and_told_more_rarely(
    monkeypatch: pytest.MonkeyPatch, long_s: float, latest: int
) -> None:
    monkeypatch.setattr(bench_module, "SNAPSHOT_S", 1e-6)
    monkeypatch.setattr(bench_module, "LONG_S", long_s)
    monkeypatch.setattr(bench_module, "QUICK_S", 1.0 if latest == 3 else 0.0)
    monkeypatch.setattr(bench_module, "PAUSE", 1e9)
    with closing(Bench(SeedsItsOwn())) as bench:
        told = []
        for number in range(4):
            bench.batch([number])
            told.append(bench.bench.mark_if_quick() is not None)
        assert bench.board.latest_ticket() == latest
        assert told == [True, *[latest == 3] * 3]
        assert bench.bench.first_mark() is not None
