"""The state of all generators that a dataset depends on, and back."""

import functools
import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze.engine.worker.randomness import MOST_OBJECTS, Randomness
from antifreeze.engine.worker.recipe import Recipe


def recipe_of(dataset: Any, collate_fn: Any = None) -> Recipe:
    return Recipe(dataset, collate_fn, True, None, 0, 1, 1)


class Transform:
    def __init__(self) -> None:
        self.python = random.Random(5)


class Dataset:
    def __init__(self) -> None:
        self.numpy = np.random.default_rng(1)
        self.legacy = np.random.RandomState(2)
        self.torch = torch.Generator().manual_seed(3)
        self.transforms = [Transform(), {"deep": np.random.default_rng(4)}]
        self.partial = functools.partial(max, key=random.Random(6))
        self.lazy: Any = None
        inside = random.Random(7)
        self.closure = lambda: inside.random() + 0

    def draw(self) -> list[Any]:
        if self.lazy is None:
            self.lazy = np.random.default_rng(8)
        return [
            torch.rand(2).tolist(),
            random.random(),
            np.random.rand(),
            self.numpy.random(),
            self.legacy.rand(),
            torch.rand(1, generator=self.torch).item(),
            self.transforms[0].python.random(),
            self.transforms[1]["deep"].random(),
            self.partial.keywords["key"].random(),
            self.lazy.random(),
            self.closure(),
        ]


def test_another_worker_draws_what_the_lost_one_would_have_drawn() -> None:
    lost = Dataset()
    randomness = Randomness(recipe_of(lost))
    for _ in range(3):
        lost.draw()
    state = randomness.state()
    expected = [lost.draw() for _ in range(3)]
    fresh = Dataset()
    Randomness(recipe_of(fresh)).restore(state)
    assert [fresh.draw() for _ in range(3)] == expected


def test_a_snapshot_is_not_changed_by_what_is_drawn_after_it() -> None:
    dataset = Dataset()
    dataset.draw()
    randomness = Randomness(recipe_of(dataset))
    state = randomness.state()
    first = dataset.draw()
    dataset.draw()
    randomness.restore(state)
    assert dataset.draw() == first


@pytest.mark.parametrize("wrap", [lambda inner: torch.utils.data.Subset(inner, [0]), lambda inner: [inner]])
def test_generators_are_found_inside_wrappers_and_in_bound_collate_functions(wrap: Any) -> None:
    dataset, collator = Dataset(), Transform()
    dataset.draw()
    randomness = Randomness(recipe_of(wrap(dataset), collator.python.random))
    state = randomness.state()
    first = (dataset.draw(), collator.python.random())
    randomness.restore(state)
    assert (dataset.draw(), collator.python.random()) == first


def test_the_search_is_bounded_and_data_is_not_looked_through() -> None:
    class Large:
        def __init__(self) -> None:
            self.rng = random.Random(1)
            self.paths = [str(number) for number in range(1_000_000)]
            self.nested = [[[[number] for number in range(20)] for _ in range(60)] for _ in range(60)]

    dataset = Large()
    randomness = Randomness(recipe_of(dataset))
    assert not randomness._is_quick
    state = randomness.state()
    assert len(state) < 20_000
    first = dataset.rng.random()
    randomness.restore(state)
    assert dataset.rng.random() == first
    assert len(pickle.loads(state)[3]) == 1
    assert MOST_OBJECTS < 60 * 60 * 20


def test_the_program_s_own_random_is_not_taken_twice() -> None:
    class Bound:
        def __init__(self) -> None:
            self.draw = random.random
            self.instance = random._inst  # type: ignore[attr-defined]

    assert pickle.loads(Randomness(recipe_of(Bound())).state())[3] == {}


def test_generators_that_are_not_drawn_from_stay_as_they_are_seen() -> None:
    dataset = Dataset()
    randomness = Randomness(recipe_of(dataset))
    seen = {randomness.held_state() for _ in range(50)}
    assert len(seen) == 1
    dataset.draw()
    assert randomness.held_state() not in seen
