"""The other parts of random loaders: samplers, batch samplers, collate functions and worker_init_fns."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler, default_collate, default_convert, get_worker_info

from differential.loaders.datasets import SETTINGS
from differential.loaders.samples import Box


class ShuffleByOwnGenerator(Sampler[int]):
    """A sampler with a generator of its own, which goes on from epoch to epoch."""

    def __init__(self, length: int, seed: int) -> None:
        self.length, self.generator = length, torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.length, generator=self.generator).tolist())


class DrawOneByOne(Sampler[int]):
    """A sampler that draws each index when it is asked for it, and may fail on the way."""

    def __init__(self, length: int, source: str, fails_at: int | None) -> None:
        self.length, self.source, self.fails_at = length, source, fails_at

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        for k in range(self.length):
            if k == self.fails_at:
                raise ValueError("the sampler fails")
            yield SOURCES[self.source](self.length)


SOURCES = {
    "torch": lambda length: int(torch.randint(length, ()).item()),
    "tensor": lambda length: torch.randint(length, ()),
    "numpy": np.random.randint,
    "random": random.randrange,
}


class Batches:
    """A batch sampler without a length."""

    def __init__(self, length: int, seed: int) -> None:
        draw = random.Random(seed)
        smallest = 0 if draw.random() < 0.1 else 1
        self.batches = [
            [draw.randrange(length) for _ in range(draw.randint(smallest, 4))] for _ in range(draw.randint(1, 8))
        ]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


class BatchesWithLength(Batches):
    """A batch sampler with a length."""

    def __len__(self) -> int:
        return len(self.batches)


def seed_torch_by_number(number: int) -> None:
    torch.manual_seed(number)


def seed_numpy_by_torch(number: int) -> None:
    np.random.seed((torch.initial_seed() + number) % 2**32)


def seed_all_alike(number: int) -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def change_dataset_and_global(number: int) -> None:
    info = get_worker_info()
    assert info is not None
    if isinstance(getattr(info.dataset, "count", None), int):
        info.dataset.count += 100 * number
    SETTINGS["scale"] = 50 + number


def draw_and_set_dtype(number: int) -> None:
    torch.rand(3)
    np.random.rand()
    random.random()
    torch.set_default_dtype(torch.float64)


def seed_first_by_info(number: int) -> None:
    info = get_worker_info()
    assert info is not None
    if number == 0:
        np.random.seed(info.seed % 2**32)


def set_threads(number: int) -> None:
    torch.set_num_threads(2)


def fail_to_begin(number: int) -> None:
    raise ValueError(f"worker_init_fn {number} fails")


INIT_FUNCTIONS = {
    function.__name__: function
    for function in (
        seed_torch_by_number,
        seed_numpy_by_torch,
        seed_all_alike,
        change_dataset_and_global,
        draw_and_set_dtype,
        seed_first_by_info,
        set_threads,
        fail_to_begin,
    )
}


def keep_list(samples: list[Any]) -> list[Any]:
    return samples


def take_first(samples: list[Any]) -> Any:
    return samples[0]


def make_tuple(samples: list[Any]) -> tuple[Any, ...]:
    return tuple(samples), len(samples)


def collate_and_draw(samples: list[Any]) -> dict[str, Any]:
    return {"samples": default_collate(samples), "torch": torch.rand(2), "numpy": np.random.rand(2)}


def convert(samples: list[Any]) -> Any:
    return default_convert(samples)


def count_as_text(samples: list[Any]) -> str:
    return repr(len(samples))


def make_box(samples: list[Any]) -> list[Any]:
    return [torch.as_tensor(len(samples)), Box(torch.rand(1))]


def make_set(samples: list[Any]) -> set[Any]:
    return {len(samples), "a"}


def make_none(samples: list[Any]) -> None:
    return None


def fail_to_collate(samples: list[Any]) -> None:
    raise ValueError("collate_fn fails")


class CountingCollate:
    """A collate function with a state and a generator of its own."""

    def __init__(self) -> None:
        self.calls, self.generator = 0, np.random.default_rng(9)

    def __call__(self, samples: list[Any]) -> tuple[Any, ...]:
        self.calls += 1
        return self.calls, self.generator.random(), default_collate(samples)


TAKE_ANYTHING = {function.__name__: function for function in (keep_list, take_first, make_tuple)}
COLLATE_FUNCTIONS = TAKE_ANYTHING | {
    function.__name__: function
    for function in (
        collate_and_draw,
        convert,
        count_as_text,
        make_box,
        make_set,
        make_none,
        fail_to_collate,
        CountingCollate,
    )
}
