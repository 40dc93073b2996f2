"""`StatefulDataLoader`: a pass that was broken off goes on with the batch that would have come next."""

import copy
import io
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, DistributedSampler, IterableDataset, Sampler, get_worker_info

from antifreeze import CheckpointError, ConfigError, StatefulDataLoader
from antifreeze.observe import say
from drop_in.harness import assert_identical, generator_states, seed_all

pytestmark = pytest.mark.usefixtures("not_for_torch")

LENGTH = 30


class Drawing(Dataset[Any]):
    """Samples draw from the generators of the program and from one that the dataset holds."""

    def __init__(self, log: Path | None = None) -> None:
        self.own = np.random.default_rng(3)
        self.log = log

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[float, ...]:
        if self.log is not None:
            with self.log.open("a") as log:
                log.write(f"{index}\n")
        if get_worker_info() is None:  # there, the generators of the program are the training's
            return index, self.own.random()
        return index, torch.rand(()).item(), random.random(), np.random.rand(), self.own.random()


class Counting(Drawing):
    """Samples depend on how many this worker has made before, and the dataset can say so."""

    def __init__(self, ballast: int = 0) -> None:
        super().__init__()
        self.made = 0
        self.ballast = ballast

    def __getitem__(self, index: int) -> tuple[float, ...]:
        self.made += 1
        return self.made, *super().__getitem__(index)

    def state_dict(self) -> dict[str, Any]:
        return {"made": self.made, "ballast": "x" * self.ballast}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.made = state["made"]


class Stream(IterableDataset[Any]):
    """Workers have streams of different lengths, and draw."""

    def items(self) -> range:
        worker = get_worker_info()
        return range(40) if worker is None else range(worker.id * 100, worker.id * 100 + 11 + 8 * worker.id)

    def __iter__(self) -> Iterator[Any]:
        for item in self.items():
            yield (item,) if get_worker_info() is None else (item, torch.rand(()).item(), random.random())


class StatefulStream(Stream):
    """Can say where it is, and in which epoch."""

    def __init__(self) -> None:
        self.position, self.resumes, self.epoch = 0, 0, 0

    def __iter__(self) -> Iterator[Any]:
        self.position, self.resumes = self.resumes, 0
        for item in self.items()[self.position :]:
            self.position += 1
            yield item, self.epoch
        self.position, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.resumes, self.epoch = state["position"], state["epoch"]


class LateStream(Stream):
    """Begins anew in the first line of its generator, which runs when its first item is asked for, and not before."""

    def __init__(self) -> None:
        self.position, self.is_resumed = 0, False

    def __iter__(self) -> Iterator[Any]:
        if not self.is_resumed:
            self.position = 0
        self.is_resumed = False
        items = self.items()
        while self.position < len(items):
            self.position += 1
            yield items[self.position - 1], torch.rand(()).item()

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position, self.is_resumed = state["position"], True


def through_json(state: dict[str, Any]) -> Any:
    return json.loads(json.dumps(state))


def through_torch(state: dict[str, Any]) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def make(dataset: Any = None, **options: Any) -> StatefulDataLoader[Any]:
    return StatefulDataLoader(Drawing() if dataset is None else dataset, **({"batch_size": 3} | options))


def assert_taken_up(kind: Any, stop: int, *, passes: int = 0, **options: Any) -> None:
    """After so many passes and so many batches of the next, another loader goes on as the first one does."""
    seed_all()
    first = make(kind(), **options)
    for _ in range(passes):
        list(first)
    under_way = iter(first)
    for _ in range(stop):
        next(under_way)
    state = through_torch(through_json(first.state_dict()))
    rest, following = list(under_way), list(first)
    seed_all(99)
    second = make(kind(), **options)
    second.load_state_dict(state)
    before = generator_states()
    assert_identical(list(second), rest)
    assert_identical(list(second), following)
    assert_identical(generator_states(), before)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("workers", "every"), [(0, 1), (2, 1), (2, 3), (2, 0)])
def test_a_pass_goes_on_with_the_next_batch_and_so_do_those_after_it(workers: int, every: int, shuffle: bool) -> None:
    for stop in (0, 5):
        assert_taken_up(Drawing, stop, num_workers=workers, shuffle=shuffle, snapshot_every_n_steps=every)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kind", [Stream, StatefulStream])
@pytest.mark.parametrize(("workers", "every"), [(0, 1), (2, 1), (2, 5)])
def test_a_stream_goes_on_where_it_was(kind: Any, workers: int, every: int) -> None:
    for stop in (0, 9):
        assert_taken_up(kind, stop, num_workers=workers, snapshot_every_n_steps=every)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kind", [Drawing, Counting, Stream, StatefulStream, LateStream])
@pytest.mark.parametrize("every", [1, 7])
def test_kept_workers_go_on_in_a_later_pass(kind: Any, every: int) -> None:
    for stop in (0, 5):
        assert_taken_up(kind, stop, passes=1, num_workers=2, persistent_workers=True, snapshot_every_n_steps=every)


class Shuffled:
    """Counts its passes, holds generators at some distance, and draws as soon as it is asked to begin."""

    def __init__(self) -> None:
        self.counter = SimpleNamespace(passes=0)
        self.parts: dict[str, Any] = {"first": [random.Random(3)]}
        self.late: Any = None

    def __len__(self) -> int:
        return 30

    def __iter__(self) -> Iterator[Any]:
        self.late = self.late or np.random.default_rng(5)
        order = np.random.RandomState(self.counter.passes).permutation(30).tolist()
        self.counter.passes += 1
        self.parts["first"][0].shuffle(order)
        return iter([(index + int(self.late.integers(30))) % 30 for index in order])


class ShuffledBatches(Shuffled):
    """Whole batches."""

    def __iter__(self) -> Iterator[Any]:
        order = list(super().__iter__())
        return iter([order[k : k + 3] for k in range(0, 30, 3)])


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("workers", "kept"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("name", ["sampler", "batch_sampler"])
def test_a_sampler_of_the_users_goes_on_counting_and_drawing(name: str, workers: int, kept: bool) -> None:
    def loader(make: Any = make) -> Any:
        sampler = (
            {"sampler": Shuffled(), "batch_size": 3} if name == "sampler" else {"batch_sampler": ShuffledBatches()}
        )
        options = {"batch_size": 1} | sampler
        return make(Drawing(), num_workers=workers, persistent_workers=kept, **options)

    seed_all()
    plain = [[batch[0] for batch in epoch] for epoch in each_pass(loader(torch.utils.data.DataLoader))]
    seed_all()
    first, states = loader(), []
    whole = []
    for _ in range(3):
        epoch = []
        for batch in first:
            epoch.append(batch)
            if len(epoch) == 4:
                states.append(through_json(first.state_dict()))
        whole.append(epoch)
        states.append(through_json(first.state_dict()))
    assert_identical([[batch[0] for batch in epoch] for epoch in whole], plain)
    for number, state in enumerate(states[:-1]):
        at, is_over = divmod(number, 2)
        second = loader()
        second.load_state_dict(state)
        expected = whole[at + 1 :] if is_over else [whole[at][4:], *whole[at + 1 :]]
        assert_identical([list(second) for _ in expected], expected)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("after", [(0, False), (2, False), (2, True)])
def test_a_sampler_of_the_users_goes_on_by_ticket_with_another_number_of_workers(workers: int, after: Any) -> None:
    def loader(workers: int, kept: bool = False) -> Any:
        options: dict[str, Any] = {"batch_size": 1, "seeding": "ticket", "persistent_workers": kept}
        return make(Drawing(), batch_sampler=ShuffledBatches(), num_workers=workers, **options)

    for stop in (0, 4, None):
        seed_all()
        first = loader(workers)
        list(first)
        under_way = iter(first)
        for _ in under_way if stop is None else range(stop):
            next(under_way, None)
        state = through_json(first.state_dict())
        expected = [*([] if stop is None else [list(under_way)]), list(first)]
        second = loader(*after)
        second.load_state_dict(state)
        seen = [list(second) for _ in expected]
        assert_identical(
            *([[(batch[0], batch[-1]) for batch in each] for each in epochs] for epochs in (seen, expected))
        )


class ByNumpy(Sampler[int]):
    """Draws from numpy's generator."""

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(LENGTH).tolist())


def test_a_sampler_in_one_that_stands_for_a_sampler_goes_on() -> None:
    def loader() -> Any:
        return make(sampler=BatchSampler(ByNumpy(), 3, drop_last=False), batch_size=None)

    first, second = loader(), loader()
    under_way = iter(first)
    next(under_way)
    second.load_state_dict(first.state_dict())
    assert_identical(list(second), list(under_way))


def test_a_sampler_goes_back_in_the_program_that_it_came_from() -> None:
    loader = make(sampler=Shuffled())
    list(loader)
    state = loader.state_dict()
    expected = [list(loader) for _ in range(2)]
    loader.load_state_dict(state)
    assert_identical([[batch[0] for batch in loader] for _ in range(2)], [[b[0] for b in each] for each in expected])


class ByItsDataset(Sampler[int]):
    """Draws from the generator of its dataset."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return LENGTH

    def __iter__(self) -> Iterator[int]:
        yield from self.dataset.own.permutation(LENGTH).tolist()


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("workers", "kept"), [(0, False), (2, False), (2, True)])
def test_a_sampler_goes_on_with_the_generator_of_its_dataset(workers: int, kept: bool) -> None:
    def loader() -> Any:
        dataset = Drawing()
        return make(dataset, sampler=ByItsDataset(dataset), num_workers=workers, persistent_workers=kept)

    for stop in (1, 4, None):
        first, second = loader(), loader()
        list(first)
        under_way = iter(first)
        for _ in under_way if stop is None else range(stop):
            next(under_way, None)
        second.load_state_dict(through_json(first.state_dict()))
        expected = [*([] if stop is None else [list(under_way)]), list(first)]
        seen = [list(second) for _ in expected]
        assert_identical([[batch[0] for batch in each] for each in seen], [[b[0] for b in each] for each in expected])


def test_without_workers_a_sampler_is_asked_when_the_first_batch_is() -> None:
    class AtOnce(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(torch.randperm(LENGTH).tolist())

    def orders(kind: Any) -> Any:
        loaders = [kind(Drawing(), batch_size=3, sampler=AtOnce(), generator=torch.Generator()) for _ in range(2)]
        seed_all()
        return [(one[0], torch.rand(()), other[0]) for one, other in zip(*loaders, strict=True)]

    assert_identical(orders(StatefulDataLoader), orders(torch.utils.data.DataLoader))


def each_pass(loader: Any) -> list[list[Any]]:
    return [list(loader) for _ in range(3)]


class CountingStream(Stream):
    """Shuffles by the number of its pass, which it counts."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        yield from random.Random(self.passes).sample(self.items(), len(self.items()))


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}])
def test_a_stream_goes_on_counting_its_passes(options: dict[str, Any]) -> None:
    for stop in (0, 5):
        assert_taken_up(CountingStream, stop, passes=2, **options)
    first = make(CountingStream(), **options)
    list(first)
    second = make(CountingStream(), **options)
    second.load_state_dict(through_json(first.state_dict()))
    assert_identical(list(second), list(first))


@pytest.mark.parametrize("first_epoch", [0, 1])
def test_an_epoch_that_is_set_after_the_state_was_loaded_is_meant(first_epoch: int) -> None:
    def loader() -> Any:
        return make(sampler=DistributedSampler(Drawing(), num_replicas=1, rank=0))

    first, second = loader(), loader()
    first.sampler.set_epoch(first_epoch)
    list(first)
    second.load_state_dict(through_json(first.state_dict()))
    for each in (first, second):
        each.sampler.set_epoch(first_epoch + 1)
    assert [batch[0].tolist() for batch in second] == [batch[0].tolist() for batch in first]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kind", [Drawing, Counting, Stream, StatefulStream])
@pytest.mark.parametrize(("workers", "kept"), [(0, False), (2, False), (2, True)])
def test_after_the_end_the_next_pass_comes_and_before_it_an_empty_rest(kind: Any, workers: int, kept: bool) -> None:
    options = {"num_workers": workers, "persistent_workers": kept, "snapshot_every_n_steps": 4}
    first = make(kind(), **options)
    for _ in first:
        before_the_end = first.state_dict()
    after_the_end = through_json(first.state_dict())
    following = list(first)
    second = make(kind(), **options)
    second.load_state_dict(before_the_end)
    assert list(second) == []
    assert_identical(list(second), following)
    third = make(kind(), **options)
    third.load_state_dict(after_the_end)
    assert_identical(list(third), following)


@pytest.mark.parametrize("workers", [0, 2])
def test_of_what_was_delivered_one_batch_is_fetched_again_at_most_and_nothing_else_twice(
    tmp_path: Path, workers: int
) -> None:
    first = make(shuffle=True, num_workers=workers)
    under_way = iter(first)
    seen = [next(under_way) for _ in range(4)]
    state = first.state_dict()
    log = tmp_path / "fetched"
    second = make(Drawing(log), shuffle=True, num_workers=workers)
    second.load_state_dict(state)
    seen += list(second)
    delivered = [int(index) for batch in seen[:4] for index in batch[0]]
    fetched = [int(line) for line in log.read_text().split()]
    assert set(fetched) & set(delivered) <= set(delivered[-3:])  # for what user code does once in a worker
    assert sorted(set(fetched) - set(delivered)) == sorted(index for index in fetched if index not in delivered)
    assert sorted(int(index) for batch in seen for index in batch[0]) == list(range(LENGTH))


class ChangesItsData(Dataset[Any]):
    """Right in each pass of workers that are forked anew."""

    def __init__(self) -> None:
        self.images = [np.full(2, float(index)) for index in range(LENGTH)]

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        image = self.images[index]
        image /= 10
        return image


@pytest.mark.parametrize(("stop", "every"), [(1, 1), (5, 1), (2, 3), (5, 3)])
def test_a_dataset_that_changes_its_data_in_place_gives_each_sample_once(stop: int, every: int) -> None:
    assert_taken_up(ChangesItsData, stop, num_workers=2, shuffle=True, snapshot_every_n_steps=every)


class SeedsOnce(Drawing):
    """Seeds generators at the first sample in each worker."""

    is_seeded = False

    def __getitem__(self, index: int) -> tuple[float, ...]:
        if not self.is_seeded:
            self.is_seeded = True
            np.random.seed(17)
        return super().__getitem__(index)


@pytest.mark.parametrize(("stop", "every", "passes"), [(5, 1, 0), (4, 3, 0), (0, 1, 1), (1, 0, 1)])
def test_a_dataset_that_seeds_at_its_first_sample_goes_on_with_its_numbers(stop: int, every: int, passes: int) -> None:
    kept = bool(passes)
    assert_taken_up(
        SeedsOnce, stop, passes=passes, num_workers=2, persistent_workers=kept, snapshot_every_n_steps=every
    )


class PerClass(Dataset[Any]):
    """Every class of samples has a generator of its own, made when the first of them is fetched."""

    def __init__(self, others: int) -> None:
        self.held: dict[int, np.random.Generator] = {}
        self.others = [[{"in": [number]} for number in range(40)] for _ in range(others)]

    def __len__(self) -> int:
        return 72

    def __getitem__(self, index: int) -> tuple[float, ...]:
        kind = index // 24
        if kind not in self.held:
            self.held[kind] = np.random.default_rng(kind)
        return index, self.held[kind].random()


@pytest.mark.long(but=4)
@pytest.mark.parametrize("others", [0, 40], ids=["few objects", "many objects"])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_generators_that_are_made_late_in_a_pass_go_on(workers: int, others: int) -> None:
    options: dict[str, Any] = {"batch_size": 2, "num_workers": workers}
    loader = StatefulDataLoader(PerClass(others), **options)
    batches, states = [], []
    for batch in loader:
        batches.append(batch)
        states.append(loader.state_dict())
    for stop in (12, 13, 14, 24, 25):
        resumed = StatefulDataLoader(PerClass(others), **options)
        resumed.load_state_dict(states[stop - 1])
        assert_identical(list(resumed), batches[stop:])


class StreamPerClass(IterableDataset[Any]):
    """A shuffled stream with a generator for each class of its items, made when the first of them comes."""

    def __init__(self) -> None:
        self.held: dict[int, random.Random] = {}

    def __iter__(self) -> Iterator[tuple[float, ...]]:
        info = get_worker_info()
        numbers = list(range(info.id, 30, info.num_workers))
        random.shuffle(numbers)
        for number in numbers:
            kind = number // 9
            if kind not in self.held:
                self.held[kind] = random.Random(kind)
            yield number, self.held[kind].random()


@pytest.mark.parametrize("stop", [0, 1, 10])
@pytest.mark.parametrize("kills", [False, True])
def test_a_stream_that_has_made_several_generators_gives_each_item_once(stop: int, kills: bool) -> None:
    def kept() -> StatefulDataLoader[Any]:
        seed_all()
        return StatefulDataLoader(StreamPerClass(), batch_size=1, num_workers=2, persistent_workers=True)

    loader = kept()
    expected = [list(loader) for _ in range(3)]
    loader = kept()
    list(loader)
    iterator = iter(loader)
    batches = [next(iterator) for _ in range(stop)]
    if kills:
        for worker in iterator._workers:
            os.kill(worker.pid, signal.SIGKILL)
    else:
        state = loader.state_dict()
        loader = kept()
        loader.load_state_dict(state)
        iterator = iter(loader)
    assert_identical([*batches, *iterator], expected[1])
    assert_identical(list(loader), expected[2])


def test_workers_that_are_killed_right_after_a_pass_is_taken_up_are_replaced_from_where_they_were() -> None:
    for kind in (Counting, StatefulStream, Stream):
        first = make(kind(), num_workers=2)
        under_way = iter(first)
        for _ in range(5):
            next(under_way)
        state, rest = first.state_dict(), list(under_way)
        second = make(kind(), num_workers=2)
        second.load_state_dict(state)
        again: Any = iter(second)
        for worker in list(again._workers):
            os.kill(worker.pid, signal.SIGKILL)
        assert_identical(list(again), rest)


def test_out_of_order_nothing_is_lost_and_nothing_comes_twice() -> None:
    for kind in (Drawing, Stream):
        first = make(kind(), batch_size=1, num_workers=2, in_order=False)
        under_way = iter(first)
        seen = [int(next(under_way)[0]) for _ in range(7)]
        second = make(kind(), batch_size=1, num_workers=2, in_order=False)
        second.load_state_dict(through_json(first.state_dict()))
        seen += [int(batch[0]) for batch in second]
        assert sorted(seen) == sorted(int(batch[0]) for batch in make(kind(), batch_size=1, num_workers=2))


class FirstIsSlow(Drawing):
    """The first batch comes after others."""

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            time.sleep(0.5)
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [1, 2])
def test_out_of_order_a_batch_that_was_waited_for_comes_with_its_seed(workers: int) -> None:
    options: dict[str, Any] = {"in_order": False, "seeding": "ticket", "batch_size": 2}
    seed_all()
    expected = list(StatefulDataLoader(Drawing(), num_workers=1, seeding="ticket", batch_size=2))
    seed_all()
    loader = StatefulDataLoader(FirstIsSlow(), num_workers=2, **options)
    iterator = iter(loader)
    batches = [next(iterator) for _ in range(3)]
    state = through_json(loader.state_dict())
    assert state["antifreeze"]["open"], "the slow batch came in time"
    resumed = StatefulDataLoader(Drawing(), num_workers=workers, **options)
    resumed.load_state_dict(state)
    batches += resumed
    assert_identical(sorted(batches, key=lambda batch: float(batch[0][0])), expected)


def test_a_large_state_of_the_dataset_crosses_with_every_batch() -> None:
    assert_taken_up(lambda: Counting(ballast=300_000), 4, num_workers=2)


# --- samplers


class Backwards(Sampler[int]):
    """Says where it is, counts its passes, and is asked for no index that it has given."""

    def __init__(self, asked: list[int] | None = None) -> None:
        self.given, self.resumes, self.epoch = 0, 0, 0
        self.asked = [] if asked is None else asked

    def __iter__(self) -> Iterator[int]:
        self.given, self.resumes = self.resumes, 0
        while self.given < LENGTH:
            index = (LENGTH - 1 - self.given + self.epoch) % LENGTH
            self.given += 1
            self.asked.append(index)
            yield index
        self.given, self.epoch = 0, self.epoch + 1

    def __len__(self) -> int:
        return LENGTH

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.resumes, self.epoch = state["given"], state["epoch"]


class Hops:
    """An iterator that says where it is."""

    def __init__(self) -> None:
        self.at = 0

    def __next__(self) -> int:
        if self.at >= LENGTH:
            raise StopIteration
        self.at += 1
        return (self.at * 7) % LENGTH

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Hopping(Sampler[int]):
    def __iter__(self) -> Any:
        return Hops()

    def __len__(self) -> int:
        return LENGTH


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kind", [Backwards, Hopping])
@pytest.mark.parametrize(("workers", "every"), [(0, 1), (2, 1), (2, 4)])
def test_a_sampler_that_can_say_where_it_is_is_asked_and_not_drawn_from(kind: Any, workers: int, every: int) -> None:
    for stop in (5, 10):
        first = make(sampler=kind(), num_workers=workers, snapshot_every_n_steps=every)
        under_way = iter(first)
        for _ in range(stop):
            next(under_way)
        state = through_json(first.state_dict())
        rest, following = list(under_way), list(first)
        second = make(sampler=kind(), num_workers=workers, snapshot_every_n_steps=every)
        second.load_state_dict(state)
        assert_identical(list(second), rest)
        assert_identical(list(second), following)


def test_a_sampler_is_not_asked_for_what_was_delivered() -> None:
    first = make(sampler=Backwards(), num_workers=2)
    under_way = iter(first)
    for _ in range(6):
        next(under_way)
    asked: list[int] = []
    second = make(sampler=Backwards(asked), num_workers=2)
    second.load_state_dict(first.state_dict())
    list(second)
    assert len(asked) == LENGTH - 6 * 3


def test_the_epoch_of_a_distributed_sampler_is_part_of_the_state(capsys: pytest.CaptureFixture[str]) -> None:
    say._said.clear()

    def made() -> tuple[Any, Any]:
        sampler: Any = DistributedSampler(Drawing(), num_replicas=2, rank=1, shuffle=True)
        return sampler, make(sampler=sampler, num_workers=2)

    sampler, first = made()
    sampler.set_epoch(3)
    under_way = iter(first)
    next(under_way)
    state, rest = first.state_dict(), list(under_way)
    sampler, second = made()
    sampler.set_epoch(3)
    second.load_state_dict(state)
    assert_identical(list(second), rest)
    assert "set_epoch" not in capsys.readouterr().err
    sampler, third = made()
    third.load_state_dict(state)
    sampler.set_epoch(0)
    assert_identical(list(third), rest)
    assert "set_epoch(0) was said to the sampler" in capsys.readouterr().err


# --- when state_dict is called, and when load_state_dict


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_from_before_the_first_pass_is_of_its_beginning(workers: int) -> None:
    first = make(Counting(), shuffle=True, num_workers=workers)
    state = first.state_dict()
    whole = list(first)
    second = make(Counting(), shuffle=True, num_workers=workers)
    second.load_state_dict(state)
    assert second.state_dict() == state
    assert_identical(list(second), whole)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_that_is_loaded_ends_the_pass_under_way(workers: int) -> None:
    loader = make(num_workers=workers)
    under_way = iter(loader)
    next(under_way)
    state = loader.state_dict()
    loader.load_state_dict(state)
    with pytest.raises(RuntimeError, match="iter\\(loader\\) starts"):
        next(under_way)
    assert len(list(loader)) == LENGTH // 3 - 1


def test_an_empty_state_is_no_state() -> None:
    loader = make()
    loader.load_state_dict({})
    assert len(list(loader)) == LENGTH // 3


def test_a_state_does_not_change_when_the_pass_goes_on() -> None:
    loader = make(Counting(), num_workers=2)
    under_way = iter(loader)
    next(under_way)
    state = loader.state_dict()
    kept = copy.deepcopy(state)
    list(under_way)
    assert state == kept != loader.state_dict()


def test_what_users_of_torchdata_look_for_is_where_they_look_for_it() -> None:
    loader = make(StatefulStream(), num_workers=2)
    under_way = iter(loader)
    for _ in range(4):
        next(under_way)
    snapshots = loader.state_dict()["_snapshot"]["_worker_snapshots"]
    assert snapshots["worker_0"]["dataset_state"] == {"position": 6, "epoch": 0}
    assert snapshots["worker_1"]["fetcher_state"]["fetcher_ended"] is False
    inline = make(StatefulStream())
    next(iter(inline))
    assert inline.state_dict()["dataset_state"] == {"position": 3, "epoch": 0}


def test_a_dataset_that_fails_to_say_where_it_is_costs_no_batch_and_is_named() -> None:
    class Mute(Drawing):
        def state_dict(self) -> dict[str, Any]:
            raise KeyError("mute")

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    loader = make(Mute(), num_workers=2)
    under_way = iter(loader)
    next(under_way)
    with pytest.raises(CheckpointError, match=r"the dataset cannot say where it is(.|\n)*KeyError: 'mute'"):
        loader.state_dict()
    assert len(list(under_way)) == LENGTH // 3 - 1


def test_on_torchs_own_iterator_what_was_delivered_is_read_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say._said.clear()
    monkeypatch.setenv("ANTIFREEZE", "0")
    first = make(shuffle=True, num_workers=2)
    under_way = iter(first)
    for _ in range(4):
        next(under_way)
    state, rest = through_json(first.state_dict()), list(under_way)
    second = make(shuffle=True, num_workers=2)
    second.load_state_dict(state)
    assert_identical(list(second), rest)
    assert "by reading 4 batches again" in capsys.readouterr().err
    monkeypatch.setenv("ANTIFREEZE", "require")
    third = make(shuffle=True, num_workers=2)
    third.load_state_dict(state)
    assert_identical(list(third), rest)


# --- refusals


def state_of(stop: int = 4, **options: Any) -> Any:
    loader = make(**options)
    under_way = iter(loader)
    for _ in range(stop):
        next(under_way)
    return through_json(loader.state_dict())


class Longer(Drawing):
    def __len__(self) -> int:
        return LENGTH + 1


def distributed(replicas: int, rank: int) -> Any:
    return DistributedSampler(Drawing(), num_replicas=replicas, rank=rank)


@pytest.mark.parametrize(
    ("saved", "present", "what"),
    [
        ({}, {"dataset": Longer()}, "the number of samples was 30 and is 31"),
        ({}, {"batch_size": 2}, "batch_size was 3 and is 2"),
        ({}, {"drop_last": True}, "drop_last was False and is True"),
        ({}, {"shuffle": True}, "the sampler was SequentialSampler and is RandomSampler"),
        ({}, {"dataset": Stream()}, "the kind of dataset was map-style and is iterable"),
        ({}, {"num_workers": 2}, "num_workers was 0 and is 2"),
        ({}, {"seeding": "ticket"}, "seeding was torch and is ticket"),
        ({"sampler": distributed(2, 0)}, {"sampler": distributed(3, 0)}, "num_replicas was 2 and is 3"),
        ({"sampler": distributed(2, 0)}, {"sampler": distributed(2, 1)}, "rank was 0 and is 1"),
    ],
)
def test_a_state_of_another_loader_is_refused(saved: Any, present: Any, what: str) -> None:
    loader = make(**present)
    before = loader.generator.get_state()
    with pytest.raises(CheckpointError, match=what) as caught:
        loader.load_state_dict(state_of(**saved))
    assert caught.value.try_
    assert torch.equal(loader.generator.get_state(), before)
    assert list(loader), "it goes on as if nothing had been loaded"


def test_a_state_from_beyond_the_end_is_refused() -> None:
    state = state_of()
    state["antifreeze"]["planned"] = 11
    with pytest.raises(CheckpointError, match="from after batch 11, and this loader has 10 batches"):
        make().load_state_dict(state)


@pytest.mark.parametrize("name", ["torch", "random", "numpy", "held"])
def test_a_state_with_a_broken_generator_is_refused(name: str) -> None:
    state = state_of(num_workers=2)
    state["antifreeze"]["standpoints"][1]["generators"][name] = {"kind": name, "state": "no base64"}
    with pytest.raises(CheckpointError, match="this state is broken"):
        make(num_workers=2).load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_order_that_is_not_the_one_that_was_is_refused(workers: int) -> None:
    def loader(order: list[int]) -> StatefulDataLoader[Any]:
        return StatefulDataLoader(Drawing(), batch_sampler=BatchSampler(order, 3, False), num_workers=workers)

    first = loader(list(range(LENGTH)))
    under_way = iter(first)
    next(under_way)
    second = loader(list(reversed(range(LENGTH))))
    second.load_state_dict(first.state_dict())
    with pytest.raises(CheckpointError, match="another order than it gave"):
        iter(second)


@pytest.mark.parametrize("value", [-1, 1.5, True, "2"])
def test_a_number_of_steps_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="snapshot_every_n_steps"):
        make(snapshot_every_n_steps=value)


class Interrupting(Sampler[int]):
    """Asks for the state of its loader while a pass is begun, as a signal handler may."""

    loader: StatefulDataLoader[Any]

    def __init__(self) -> None:
        self.errors: list[CheckpointError] = []

    def __iter__(self) -> Iterator[int]:
        try:
            self.loader.state_dict()
        except CheckpointError as error:
            self.errors.append(error)
        return iter(range(LENGTH))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_while_a_pass_is_begun_is_refused_and_costs_no_later_pass(workers: int) -> None:
    """Another pass was begun for it, and the next `iter()` gave the one that had ended."""
    sampler = Interrupting()
    loader = StatefulDataLoader(Drawing(), batch_size=None, sampler=sampler, num_workers=workers)
    sampler.loader = loader
    assert [len(list(loader)) for _ in range(2)] == [LENGTH, LENGTH]
    assert sampler.errors
    assert "a pass is being begun" in str(sampler.errors[0])


class Interrupted(StatefulStream):
    """Ctrl-C comes while it makes its eighth item."""

    def __iter__(self) -> Iterator[Any]:
        for number, item in enumerate(super().__iter__()):
            if number == 7:
                raise KeyboardInterrupt
            yield item


def test_a_stream_that_was_interrupted_in_a_batch_does_not_say_that_the_user_has_it() -> None:
    loader = StatefulDataLoader(Interrupted(), batch_size=3)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    with pytest.raises(CheckpointError, match="has given some of its items"):
        loader.state_dict()


class Stateless(random.Random):
    def getstate(self) -> Any:
        raise NotImplementedError("it has none")


class DrawsFromTheStateless(Dataset[float]):
    def __init__(self) -> None:
        self.own = Stateless(3)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return self.own.random()


@pytest.mark.parametrize("seeding", [None, "ticket"])
def test_without_workers_a_generator_without_a_state_is_no_error_until_a_state_is_asked_for(seeding: Any) -> None:
    loader = StatefulDataLoader(DrawsFromTheStateless(), batch_size=2, seeding=seeding)
    batches = iter(loader)
    assert len(next(batches)) == 2
    if seeding is None:
        with pytest.raises(NotImplementedError, match="it has none"):
            loader.state_dict()
    assert len(list(batches)) == 3
