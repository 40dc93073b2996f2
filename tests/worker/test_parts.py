"""Where a worker is, told in parts: put together they are the whole, and what is sent is small."""

import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze.engine.wire.channel import LARGEST
from antifreeze.engine.worker.kinds import current_global, exchange_global
from antifreeze.engine.worker.parts import Parts, Teller, merged, place_of
from antifreeze.engine.worker.place import rest_of
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.engine.worker.recipe import Recipe


class Holding:
    def __init__(self) -> None:
        self.own = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def generators() -> Iterator[None]:
    before = current_global()
    yield
    exchange_global(before)


DRAWS: dict[str, Callable[[Holding], Any]] = {
    "nothing": lambda _: None,
    "torch": lambda _: torch.rand(3),
    "torch, one of a pair": lambda _: torch.randn(1),
    "torch, many": lambda _: torch.rand(5000),
    "random": lambda _: random.random(),
    "random, one of a pair": lambda _: random.gauss(0, 1),
    "random, many": lambda _: [random.random() for _ in range(1000)],
    "numpy": lambda _: np.random.rand(),
    "numpy, one of a pair": lambda _: np.random.randn(),
    "numpy, many": lambda _: np.random.rand(1000),
    "held": lambda dataset: dataset.own.random(),
    "seeds": lambda _: (random.seed(5), np.random.seed(6)),
}


def same(one: Any, other: Any) -> bool:
    return pickle.dumps(one, 5) == pickle.dumps(other, 5)


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_are_the_whole_whatever_is_drawn(seed: int) -> None:
    dataset = Holding()
    randomness = Randomness(Recipe(dataset, None, True, None, 0, 1, 1))  # type: ignore[arg-type]
    teller = Teller(randomness)
    chosen = random.Random(seed)
    said: Parts | None = None
    for number in range(60):
        DRAWS[chosen.choice([*DRAWS])](dataset)
        said = merged(said, teller.tell(rest_of("here", {"number": number // 10})))
        place = place_of(said)
        assert place.of_dataset == {"number": number // 10}
        *told, _ = pickle.loads(place.generators)
        *shared, held = pickle.loads(randomness.state())
        assert all(same(one, other) for one, other in zip(told, shared, strict=True))
        assert same(pickle.loads(place.generators)[3], held)


@pytest.mark.parametrize("draw", [name for name in DRAWS if name != "seeds"])
def test_what_one_batch_changes_fits_into_a_message(draw: str) -> None:
    dataset = Holding()
    teller = Teller(Randomness(Recipe(dataset, None, True, None, 0, 1, 1)))  # type: ignore[arg-type]
    place = rest_of("here")
    teller.tell(place)
    for _ in range(3):
        DRAWS[draw](dataset)
        told = teller.tell(place)
        assert len(pickle.dumps(told, 5)) < LARGEST - 1000
        assert bool(told) == (draw != "nothing")
    assert teller.tell(place) == ()


def test_after_it_has_forgotten_everything_is_told() -> None:
    teller = Teller(Randomness(Recipe(Holding(), None, True, None, 0, 1, 1)))  # type: ignore[arg-type]
    first = teller.tell(rest_of("here"))
    teller.forget()
    assert teller.tell(rest_of("here")) == first
    assert None not in first
