"""Streams in this process: where one was, and what becomes of one that goes on from there."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import IterableDataset

from antifreeze.engine.arena import board as boards
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.wire.messages import Begin, Ended, Failed, Filled, Work
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.renewal import Heritage
from antifreeze.engine.worker.stream_bench import StreamBench
from antifreeze.policy import Policy


class Resumable(IterableDataset[int]):
    """Says where it is, and is back at its start when it has come to its end."""

    place = 0

    def state_dict(self) -> int:
        return self.place

    def load_state_dict(self, state: int) -> None:
        self.place = state

    def __iter__(self) -> Iterator[int]:
        while self.place < 12:
            self.place += 1
            yield self.place - 1
        self.place = 0


class Unopened(IterableDataset[int]):
    """Cannot be read in some passes."""

    def __init__(self, *failing: int) -> None:
        self.failing = failing
        self.passes = 0

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        if self.passes in self.failing:
            raise OSError(f"pass {self.passes}")
        return iter([1, 2])


class Stumbling(IterableDataset[int]):
    """Raises once, and goes on."""

    def __init__(self) -> None:
        self.next = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.next += 1
        if self.next == 3:
            raise KeyError(3)
        if self.next > 6:
            raise StopIteration
        return self.next


class Reader:
    """One worker's bench, which looks where its stream is before every ticket; and the samples that come of it."""

    def __init__(self, dataset: Any, *, worker: int = 0, init: Any = None, **more: Any) -> None:
        self.samples: list[int] = []
        # Not a method: what looks for generators goes where the collate function leads.
        recipe = Recipe(
            dataset, self.samples.extend, True, init, 0, 2, None, **{"policy": Policy(), "is_stream": True, **more}
        )
        self.board = boards.create()
        self.bench = StreamBench(recipe, WorkerNo(worker), self.board, Heritage(os.getppid(), time.monotonic(), ()))
        self.tickets = 0

    def read(self, items: int = 2) -> type:
        """What the answer to the next ticket is."""
        answer, _ = self.bench.carry_out(Work(TicketNo(self.tickets), range(items), None, 0, ()), [])
        self.tickets += 1
        self.bench.rest()
        return type(answer)

    def begin(self) -> None:
        self.bench.begin_pass(Begin(TicketNo(self.tickets), None))

    def die(self) -> tuple[int, bytes]:
        """The ticket of its last snapshot, and the snapshot."""
        last = self.board.latest()
        self.board.close()
        assert last is not None
        return last


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antifreeze.engine.worker.stream_bench.SNAPSHOT_S", 0.0)
    monkeypatch.setattr("antifreeze.engine.worker.stream_bench.PAUSE", 0.0)


def test_a_stream_that_has_ended_does_not_begin_anew_in_another_worker() -> None:
    first = Reader(Resumable())
    assert [first.read(5) for _ in range(3)] == [Filled, Filled, Filled]
    first.bench._begin(Work(TicketNo(3), range(5), None, 0, ()), None)  # and dies there
    second = Reader(Resumable())
    second.bench.resume(first.die()[1])
    assert second.read(5) is Ended
    second.board.close()


@pytest.mark.parametrize("done", range(1, 6))
@pytest.mark.parametrize("worker", [0, 1])
def test_a_stream_that_is_shared_out_goes_on_with_the_same_share(worker: int, done: int) -> None:
    options: dict[str, Any] = {"worker": worker, "fixes": frozenset({"shard"})}
    first = Reader(Resumable(), **options)
    for _ in range(done):
        first.read(1)
    first.read(1)  # under way when it dies
    ticket, state = first.die()
    assert ticket == done
    second = Reader(Resumable(), **options)
    second.bench.resume(state)
    while second.read(1) is Filled:
        pass
    assert first.samples[:done] + second.samples == list(range(worker, 12, 2))
    second.board.close()


def test_what_is_raised_by_a_stream_that_is_shared_out_does_not_end_it() -> None:
    reader = Reader(Stumbling(), policy=Policy(then="skip"), fixes=frozenset({"shard"}))
    while reader.read(1) is not Ended:
        pass
    assert reader.samples == [1, 4, 6]
    reader.board.close()


@pytest.mark.parametrize("failing", [1, 2])
def test_a_pass_that_could_not_begin_is_no_obstacle_to_the_next(failing: int) -> None:
    reader = Reader(Unopened(failing))
    for number in (1, 2, 3):
        assert reader.read() is (Failed if number == failing else Filled)
        assert reader.read() is (Failed if number == failing else Ended)
        reader.begin()
    assert reader.samples == [1, 2, 1, 2]
    reader.board.close()


def test_a_worker_that_worker_init_fn_rejects_has_no_stream_to_let_go_of() -> None:
    def reject(worker: int) -> None:
        raise KeyError(worker)

    reader = Reader(Resumable(), init=reject)
    assert reader.read() is Failed
    reader.bench.leave()
    reader.board.close()


def test_a_state_that_cannot_be_loaded_is_told_and_does_not_end_the_worker() -> None:
    first, second = Reader(Resumable()), Reader(Stumbling())
    first.read()
    first.read()
    second.bench.resume(first.die()[1])
    assert second.read() is Failed
    second.board.close()
