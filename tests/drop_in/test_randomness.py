"""Random numbers, in the workers and in the parent, are those that torch's loader leads to."""

from typing import Any

import numpy as np
import pytest
import torch

from drop_in import datasets
from drop_in.datasets import Augmented, Eager, Lazy, Numbers
from drop_in.harness import Maker, Way, assert_same, generator_states


@pytest.mark.long(but=2)
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_random_augmentation_is_torchs_bit_for_bit(ours: Way, workers: int) -> None:
    def case(make: Maker) -> Any:
        loader = make(Augmented(11), batch_size=2, shuffle=True, num_workers=workers)
        return [list(loader) for _ in range(2)]

    first, second = assert_same(ours, case)
    assert not torch.equal(first[0][1], second[0][1]), "two epochs drew the same numbers"


def test_a_generator_seeds_the_workers(ours: Way) -> None:
    def case(make: Maker) -> Any:
        generator = torch.Generator().manual_seed(99)
        loader = make(Augmented(9), batch_size=2, shuffle=True, generator=generator)
        return [list(loader), generator.get_state(), list(loader), generator.get_state()]

    assert_same(ours, case)


def test_augmentation_without_batches_is_torchs(ours: Way) -> None:
    assert_same(ours, lambda make: list(make(Augmented(7), batch_size=None)))


def test_augmentation_in_collate_fn_is_torchs(ours: Way) -> None:
    assert_same(ours, lambda make: list(make(Augmented(7), batch_size=3, collate_fn=add_noise)))


def add_noise(samples: list[Any]) -> Any:
    return samples, torch.randn(4), np.random.randint(1000)


def test_generators_moved_by_worker_init_fn_stay_moved(ours: Way) -> None:
    assert_same(ours, lambda make: list(make(Augmented(7), batch_size=2, worker_init_fn=datasets.draw_first)))


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    ("sampler", "persistent"), [(None, False), (None, True), (Eager, True), (Eager, False), (Lazy, True)]
)
def test_the_parents_generators_move_exactly_as_with_torch(ours: Way, sampler: Any, persistent: bool) -> None:
    def case(make: Maker) -> Any:
        order = {"sampler": sampler(9)} if sampler else {"shuffle": True}
        loader = make(Numbers(9), batch_size=2, persistent_workers=persistent, **order)
        seen = [("built", generator_states())]
        for epoch in range(2):
            batches = iter(loader)
            seen.append((f"iter {epoch}", generator_states()))
            for batch in batches:
                seen.append((batch.tolist(), generator_states()))
            seen.append((f"end {epoch}", generator_states()))
        return seen

    assert_same(ours, case)


def test_numbers_drawn_by_the_trainer_between_batches_are_torchs(ours: Way) -> None:
    def case(make: Maker) -> Any:
        return [(batch, torch.rand(3)) for batch in make(Augmented(8), batch_size=2, sampler=Lazy(8))]

    assert_same(ours, case)


@pytest.mark.long(but=1)
def test_worker_seeds_are_torchs(ours: Way) -> None:
    def case(make: Maker) -> Any:
        return [iter(make(Numbers(4)))._base_seed for _ in range(3)]

    assert_same(ours, case)
