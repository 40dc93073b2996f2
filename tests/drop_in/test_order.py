"""Which samples come in which batch, and in which order."""

from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from drop_in.datasets import Backwards, Bulk, Eager, Lazy, Numbers, PlainBatches, Records
from drop_in.harness import Maker, Way, assert_same, our_way


def epochs_of(options: dict[str, Any], dataset: Any, epochs: int = 1) -> Any:
    """A case: all batches of several epochs of one loader."""

    def case(make: Maker) -> Any:
        loader = make(dataset, **{key: value() if callable(value) else value for key, value in options.items()})
        return [list(loader) for _ in range(epochs)]

    return case


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


ORDERS: dict[str, dict[str, Any]] = {
    "sequential": {"batch_size": 4},
    "batches of one": {},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "shuffle from the global seed": {"batch_size": 3, "shuffle": True},
    "shuffle from a generator": {"batch_size": 3, "shuffle": True, "generator": generator},
    "a generator without shuffle": {"batch_size": 3, "generator": generator},
    "a sampler": {"batch_size": 5, "sampler": lambda: Backwards(13)},
    "a sampler that draws when it is begun": {"batch_size": 5, "sampler": lambda: Eager(13)},
    "a sampler that draws at each index": {"batch_size": 2, "sampler": lambda: Lazy(13)},
    "a list as sampler": {"batch_size": 2, "sampler": [5, 5, 1, 0, 12]},
    "torch's random sampler": {"sampler": lambda: RandomSampler(range(13), replacement=True, num_samples=20)},
    "torch's subset sampler": {"batch_size": 2, "sampler": lambda: SubsetRandomSampler([3, 1, 4])},
    "torch's weighted sampler": {"batch_size": 4, "sampler": lambda: WeightedRandomSampler([1.0, 2.0, 3.0], 11)},
    "a batch_sampler": {"batch_sampler": lambda: BatchSampler(Backwards(13), 4, drop_last=False)},
    "a batch_sampler without sampler": {"batch_sampler": lambda: PlainBatches([[1, 2, 3], [4], [12, 0]])},
    "a batch_sampler of tuples": {"batch_sampler": lambda: PlainBatches([(1, 2), (4,)])},
    "batch_size None": {"batch_size": None},
    "batch_size None with shuffle": {"batch_size": None, "shuffle": True},
    "a batch larger than the dataset": {"batch_size": 100},
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("options", ORDERS.values(), ids=ORDERS.keys())
def test_every_order_is_torchs(ours: Way, options: dict[str, Any]) -> None:
    batches = assert_same(ours, epochs_of(options, Numbers(13), epochs=2 if options.get("shuffle") else 1))
    assert batches[0], "the case shows nothing"


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_any_number_of_workers_gives_the_same_batches(ours: Way, workers: int) -> None:
    assert_same(ours, epochs_of({"batch_size": 3, "shuffle": True, "num_workers": workers}, Numbers(14)))


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_prefetching_changes_no_batch(ours: Way, prefetch: int) -> None:
    assert_same(ours, epochs_of({"batch_size": 2, "shuffle": True, "prefetch_factor": prefetch}, Numbers(17)))


def test_fewer_batches_than_workers_are_delivered(ours: Way) -> None:
    batches = assert_same(ours, epochs_of({"batch_size": 8, "num_workers": 3}, Numbers(10)))
    assert len(batches[0]) == 2


def test_an_empty_dataset_gives_no_batch(ours: Way) -> None:
    assert assert_same(ours, epochs_of({"batch_size": 2}, Numbers(0))) == [[]]


def test_a_dataset_may_load_whole_batches(ours: Way) -> None:
    assert_same(ours, epochs_of({"batch_size": 3}, Bulk(10)))


def test_whole_batches_are_not_asked_for_without_a_batch_size(ours: Way) -> None:
    assert_same(ours, epochs_of({"batch_size": None}, Bulk(5)))


def test_plain_sequences_are_datasets(ours: Way) -> None:
    assert_same(ours, epochs_of({"batch_size": 3}, [("a", 1.5), ("b", 2.5), ("c", -0.5), ("d", float("nan"))]))


def test_indices_may_be_any_object(ours: Way) -> None:
    dataset = {("cat", 1): torch.ones(2), ("dog", 2): torch.zeros(2)}
    assert_same(ours, epochs_of({"batch_sampler": [[("dog", 2)], [("cat", 1), ("dog", 2)]]}, dataset))


def test_torchs_subsets_load(ours: Way) -> None:
    tensors = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))
    assert_same(ours, epochs_of({"batch_size": 6, "shuffle": True}, torch.utils.data.Subset(tensors, range(3, 18))))


def test_torchs_concatenations_load(ours: Way) -> None:
    assert_same(ours, epochs_of({"batch_size": 6}, torch.utils.data.ConcatDataset([Records(3), Records(4)])))


def test_a_long_epoch_keeps_its_order(ours: Way) -> None:
    batches = assert_same(ours, epochs_of({"batch_size": 2, "shuffle": True, "num_workers": 3}, Numbers(401)))
    assert len(batches[0]) == 201


def test_without_a_context_the_batches_are_the_same() -> None:
    assert_same(our_way("default"), epochs_of({"batch_size": 3, "shuffle": True}, Numbers(14)))
