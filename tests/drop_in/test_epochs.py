"""One loader over several epochs, several iterators over one loader, and loaders that change in between."""

import gc
from typing import Any

import pytest

from drop_in import datasets
from drop_in.datasets import Augmented, Numbers, Pictures, Pids
from drop_in.harness import Maker, Way, assert_same, outcome


@pytest.mark.parametrize("workers", [1, 3])
def test_augmentation_goes_on_over_the_epochs_of_persistent_workers(ours: Way, workers: int) -> None:
    def case(make: Maker) -> Any:
        loader = make(Augmented(9), batch_size=2, shuffle=True, num_workers=workers, persistent_workers=True)
        return [list(loader) for _ in range(3)]

    assert_same(ours, case)


@pytest.mark.long(but=2)
@pytest.mark.parametrize(("persistent", "after"), [(False, 3), (True, 1), (True, 7)])
def test_an_epoch_broken_off_leaves_nothing_in_the_next(ours: Way, persistent: bool, after: int) -> None:
    """Deterministic samples: how far workers had read ahead at the break is a matter of luck, for torch too."""

    def case(make: Maker) -> Any:
        loader = make(Numbers(20), batch_size=2, shuffle=True, persistent_workers=persistent)
        first = [batch for _, batch in zip(range(after), loader, strict=False)]
        return first, [list(loader) for _ in range(2)]

    assert_same(ours, case)


def test_augmentation_goes_on_after_an_epoch_was_broken_off(ours: Way) -> None:
    """All indices had been handed out before the break, so that the workers' generators stand at one certain place."""

    def case(make: Maker) -> Any:
        loader = make(Augmented(8), batch_size=2, prefetch_factor=2, persistent_workers=True)
        first = next(iter(loader))
        return first, [list(loader) for _ in range(2)]

    assert_same(ours, case)


def test_persistent_workers_are_the_same_processes_in_every_epoch(ours: Way) -> None:
    loader = ours.make(Pids(8), batch_size=1, persistent_workers=True)
    epochs = [[int(batch) for batch in loader] for _ in range(3)]
    assert epochs[0] == epochs[1] == epochs[2]
    assert len(set(epochs[0])) == 2


def test_other_workers_are_new_processes_in_every_epoch(ours: Way) -> None:
    loader = ours.make(Pids(8), batch_size=1)
    first, second = ({int(batch) for batch in loader} for _ in range(2))
    assert not first & second


@pytest.mark.parametrize("persistent", [False, True])
def test_a_change_of_the_dataset_reaches_new_workers_only(ours: Way, persistent: bool) -> None:
    def case(make: Maker) -> Any:
        dataset = Numbers(6)
        loader = make(dataset, batch_size=2, persistent_workers=persistent)
        epochs = [list(loader)]
        dataset.factor = 10
        return [*epochs, list(loader)]

    first, second = assert_same(ours, case)
    assert (first[1].tolist() == second[1].tolist()) is persistent


def test_a_change_of_the_collate_function_reaches_the_next_epoch(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Numbers(6), batch_size=2)
        epochs = [list(loader)]
        loader.collate_fn = datasets.as_is
        return [*epochs, list(loader)]

    assert_same(ours, case)


def test_the_number_of_workers_may_change_between_epochs(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Augmented(8), batch_size=2)
        epochs = []
        for workers in (2, 1, 3):
            loader.num_workers = workers
            epochs.append(list(loader))
        return epochs

    assert_same(ours, case)


def test_two_live_iterators_of_one_loader_do_not_mix(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Pictures(12), batch_size=2, shuffle=True)
        return list(zip(loader, loader, strict=True))

    assert_same(ours, case)


def test_an_iterator_outlives_its_loader(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Pictures(12), batch_size=2)
        batches = iter(loader)
        first = next(batches)
        del loader
        gc.collect()
        return first, list(batches)

    assert_same(ours, case)


def test_an_exhausted_iterator_stays_exhausted(ours: Way) -> None:
    def case(make: Maker) -> Any:
        batches = iter(make(Numbers(4), batch_size=2))
        return list(batches), [outcome(lambda: next(batches)) for _ in range(3)]

    assert_same(ours, case)


def test_iter_of_an_iterator_is_itself(ours: Way) -> None:
    batches = iter(ours.make(Numbers(4)))
    assert iter(batches) is batches


def test_starting_a_persistent_epoch_anew_gives_the_same_iterator(ours: Way) -> None:
    loader = ours.make(Numbers(8), persistent_workers=True)
    first = iter(loader)
    next(first)
    assert iter(loader) is first
    assert [int(batch) for batch in first] == list(range(8))
