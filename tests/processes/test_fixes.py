"""Where torch's own result is silently wrong: it is torch's by default, with one warning; `fix=` gives the right one."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from drop_in.harness import our_way

pytestmark = pytest.mark.usefixtures("not_for_torch")


class Drawing(Dataset[float]):
    """Draws from a generator that it holds."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> float:
        if isinstance(self.generator, torch.Generator):
            return float(torch.rand((), generator=self.generator, dtype=torch.float64))
        return float(self.generator.random() if hasattr(self.generator, "random") else self.generator.rand())


class Reseeded(Drawing):
    """Does what is right by itself, when it is first used."""

    is_seeded = False

    def __getitem__(self, index: int) -> float:
        info = get_worker_info()
        if info is not None and not self.is_seeded:
            self.is_seeded = True
            self.generator.seed(info.seed)
        return super().__getitem__(index)


class SeededByIndex(Drawing):
    """Does what is right for every sample."""

    def __getitem__(self, index: int) -> float:
        self.generator.seed(index)
        return super().__getitem__(index)


class Whole(IterableDataset[int]):
    """Does not know that there are several workers."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(30))


class AsksLate(IterableDataset[int]):
    """Reads the whole of its items, and mentions its worker in the midst of them."""

    def __iter__(self) -> Iterator[int]:
        for number in range(30):
            if number == 15:
                info = get_worker_info()
                assert info is not None and info.id < 2
            yield number


class Parts(IterableDataset[int]):
    """Knows."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        yield from range(info.id, 30, info.num_workers)


class Endless(IterableDataset[float]):
    """Different in every worker, with nothing to share out."""

    def __iter__(self) -> Iterator[float]:
        return (random.random() for _ in range(10))


class Diverging(Endless):
    """Begins with the same in every worker, and goes on as it comes."""

    def __iter__(self) -> Iterator[float]:
        yield 0.5
        yield from super().__iter__()


class Growing(Dataset[int]):
    """Changes between epochs."""

    def __init__(self) -> None:
        self.epoch = 0
        self.live = torch.zeros(1).share_memory_()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return self.epoch


def loader_of(dataset: Any, **options: Any) -> Any:
    return our_way("grown").make(dataset, batch_size=2, **options)


def items_of(loader: Any) -> list[Any]:
    return [item for batch in loader for item in batch.tolist()]


def doubts_of(loader: Any) -> list[str]:
    return [record.what.split(":")[0] for record in loader.ledger if record.kind == "doubt"]


GENERATORS = {
    "numpy": lambda: np.random.default_rng(3),
    "numpy's old": lambda: np.random.RandomState(3),
    "torch": lambda: torch.Generator().manual_seed(3),
    "random": lambda: random.Random(3),
}


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS.keys())
def test_copied_generators_are_named_and_given_seeds_of_their_own(make: Any) -> None:
    as_torch = loader_of(Drawing(make()))
    assert len(set(items_of(as_torch))) == 16
    assert doubts_of(as_torch) == ["AF501 copied-generator"]
    right = loader_of(Drawing(make()), fix=("rng",))
    first, second = items_of(right), items_of(right)
    assert len({*first, *second}) == 64
    assert doubts_of(right) == []


def test_the_seeds_that_are_given_are_the_same_on_every_run() -> None:
    def run() -> list[Any]:
        torch.manual_seed(9)
        return items_of(loader_of(Drawing(random.Random(3)), fix=("rng",)))

    assert run() == run()


def test_generators_that_are_seeded_in_the_worker_are_not_accused() -> None:
    loader = loader_of(Reseeded(random.Random(3)))
    assert len(set(items_of(loader))) == 32
    assert doubts_of(loader) == []
    loader = loader_of(Drawing(random.Random(3)), worker_init_fn=seed_by_hand)
    assert len(set(items_of(loader))) == 32
    assert doubts_of(loader) == []


def test_generators_that_are_seeded_for_every_sample_are_not_accused() -> None:
    loader = loader_of(SeededByIndex(random.Random(3)))
    assert len(set(items_of(loader))) == 32
    assert doubts_of(loader) == []


def seed_by_hand(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.generator.seed(worker)


def test_a_stream_that_every_worker_reads_whole_is_named_and_shared_out() -> None:
    as_torch = loader_of(Whole())
    assert sorted(items_of(as_torch)) == sorted([*range(30), *range(30)])
    assert doubts_of(as_torch) == ["AF502 unsharded-stream"]
    right = loader_of(Whole(), fix="shard")
    assert sorted(items_of(right)) == list(range(30))
    assert doubts_of(right) == []


@pytest.mark.parametrize("fix", [(), ("shard",)])
def test_a_stream_that_shares_itself_out_is_left_alone(fix: tuple[str, ...]) -> None:
    loader = loader_of(Parts(), fix=fix)
    assert sorted(items_of(loader)) == list(range(30))
    assert doubts_of(loader) == []


def test_a_stream_that_asks_who_it_is_after_its_first_item_is_shared_out_to_the_end() -> None:
    loader = loader_of(AsksLate(), persistent_workers=True, fix=("shard",))
    assert [sorted(items_of(loader)) for _ in range(2)] == [list(range(30))] * 2


@pytest.mark.parametrize("batch_size", [1, 2, None])
@pytest.mark.parametrize("kind", [Endless, Diverging])
def test_streams_that_differ_are_not_accused(kind: Any, batch_size: int | None) -> None:
    loader = our_way("grown").make(kind(), batch_size=batch_size)
    assert len(list(loader)) >= 10
    assert doubts_of(loader) == []


def test_a_dataset_that_was_changed_behind_its_workers_is_named_and_brought_to_them() -> None:
    for fix, expected in (((), 0), (("stale",), 1)):
        dataset = Growing()
        loader = loader_of(dataset, persistent_workers=True, fix=fix)
        assert set(items_of(loader)) == {0}
        dataset.epoch = 1
        assert set(items_of(loader)) == {expected}
        assert doubts_of(loader) == ["AF503 stale-dataset"]


def test_what_kept_workers_see_by_themselves_is_no_change() -> None:
    dataset = Growing()
    loader = loader_of(dataset, persistent_workers=True, fix=("stale",))
    items_of(loader)
    workers = [worker.pid for worker in loader._iterator._workers]
    dataset.live += 1
    items_of(loader)
    assert [worker.pid for worker in loader._iterator._workers] == workers
    assert doubts_of(loader) == []
