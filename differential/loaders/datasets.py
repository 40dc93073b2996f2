"""Datasets of random loaders: map-style and iterable, that draw, count, cache, read globals and fail."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from differential.loaders.samples import sample

SETTINGS = {"scale": 1}
"""A global that workers read and that the trainer changes between passes."""


@functools.cache
def remembered(key: int) -> float:
    """A random number that a process draws once for each key."""
    return float(np.random.rand()) + key


class CustomError(Exception):
    """An exception that can be made without arguments."""

    def __init__(self, code: int = 1) -> None:
        super().__init__(f"custom {code}")
        self.code = code


class DemandingError(Exception):
    """An exception that cannot be made from its message alone."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.why = why


ERRORS: list[Callable[[], BaseException]] = [
    lambda: ValueError("bad value"),
    lambda: KeyError("k\nq"),
    lambda: KeyError(3),
    CustomError,
    lambda: DemandingError("here", "because"),
    lambda: IndexError("ix"),
    RuntimeError,
    lambda: OSError(2, "no", "f"),
    lambda: FileNotFoundError("f"),
    lambda: UnicodeDecodeError("utf8", b"x", 0, 1, "r"),
    AssertionError,
    lambda: MemoryError("m"),
    lambda: AttributeError("x", name="q", obj=3),
    lambda: NotImplementedError("n"),
    lambda: TimeoutError("t"),
    lambda: StopAsyncIteration("s"),
    lambda: ImportError("i", name="n"),
    lambda: SyntaxError("s"),
    lambda: ZeroDivisionError("z"),
    lambda: ExceptionGroup("g", [ValueError(1)]),
]


def _draw_worker_facts() -> float:
    info = get_worker_info()
    return -1.0 if info is None else info.seed % 1000 + info.id * 1000 + info.num_workers * 10000


def _draw_class_counter() -> float:
    Items.made += 1
    return float(Items.made)


# What a sample may depend on, beside its index.
DRAWS: dict[str, Callable[[Items], float]] = {
    "torch": lambda items: torch.rand(()).item(),
    "numpy": lambda items: np.random.rand(),
    "random": lambda items: random.random(),
    "normal": lambda items: torch.randn(3).sum().item() + np.random.standard_normal() + random.gauss(0, 1),
    "permutation": lambda items: torch.randperm(7)[0].item() + int(np.random.permutation(7)[0]),
    "remembered": lambda items: remembered(items.count or 0),
    "global": lambda items: SETTINGS["scale"],
    "class counter": lambda items: _draw_class_counter(),
    "worker": lambda items: _draw_worker_facts(),
    "epoch": lambda items: items.epoch * 100.0,
}

# Generators that a dataset may hold.
HELD: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "numpy": lambda: np.random.default_rng(3),
    "numpy legacy": lambda: np.random.RandomState(4),
    "random": lambda: random.Random(5),
    "torch": lambda: torch.Generator().manual_seed(6),
    "made in the worker": lambda: None,
}


def _next_of(generator: Any) -> float:
    match generator:
        case None:
            return 0.0
        case torch.Generator():
            return torch.rand((), generator=generator).item()
        case np.random.RandomState():
            return generator.rand()
        case _:
            return generator.random()


@dataclass(frozen=True, slots=True)
class Nature:
    """What a dataset of this module does."""

    length: int
    kind: str
    draws: tuple[str, ...] = ()
    held: str = "none"
    has_cache: bool = False
    has_counter: bool = False
    fails_at: int | None = None
    error: int = 0
    has_getitems: bool = False


class Items(Dataset):
    """A map-style dataset."""

    made = 0

    def __init__(self, nature: Nature) -> None:
        self.nature = nature
        self.generator = HELD[nature.held]()
        self.cache: dict[int, Any] | None = {} if nature.has_cache else None
        self.count: int | None = 0 if nature.has_counter else None
        self.epoch = 0

    def __len__(self) -> int:
        return self.nature.length

    def __getitem__(self, index: Any) -> Any:
        i = int(index)
        if i == self.nature.fails_at:
            error = ERRORS[self.nature.error]()
            raise error
        if self.cache is None:
            return self._make(i)
        if i not in self.cache:
            self.cache[i] = self._make(i)
        return self.cache[i]

    def _make(self, i: int) -> Any:
        return sample(self.nature.kind, i, self.noise())

    def noise(self) -> float:
        """All that the next sample depends on, beside its index."""
        noise = sum(DRAWS[name](self) for name in self.nature.draws)
        if self.nature.held == "made in the worker" and self.generator is None:
            self.generator = np.random.default_rng(torch.initial_seed() % 2**32)
        noise += _next_of(self.generator)
        if self.count is not None:
            self.count += 1
            noise += self.count * 0.5
        return float(noise)


class ItemsAtOnce(Items):
    """A map-style dataset that is asked for all samples of a batch at once."""

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        self.noise()
        return [self[index] for index in indices]


class Stream(IterableDataset):
    """An iterable dataset over the samples of a map-style one."""

    def __init__(self, items: Items, *, is_sharded: bool, is_uneven: bool) -> None:
        self.items, self.is_sharded, self.is_uneven = items, is_sharded, is_uneven

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        indices = range(len(self.items))
        if info is not None and self.is_sharded:
            indices = indices[info.id :: info.num_workers]
        for i in indices:
            if self.is_uneven and info is not None and info.id == 0 and i > 3:
                return
            yield self.items[i]


class StreamWithLength(Stream):
    """An iterable dataset that says how long it is, and may be wrong."""

    def __init__(self, items: Items, *, is_sharded: bool, is_uneven: bool, length: int) -> None:
        super().__init__(items, is_sharded=is_sharded, is_uneven=is_uneven)
        self.length = length

    def __len__(self) -> int:
        return self.length


class StreamObject(Stream):
    """An iterable dataset that is its own iterator."""

    def __iter__(self) -> StreamObject:
        self.inner = super().__iter__()
        return self

    def __next__(self) -> Any:
        return next(self.inner)
