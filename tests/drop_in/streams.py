"""Iterable datasets for the cases."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info


class Shares(IterableDataset[Any]):
    """Gives each worker a share of its own length, and draws for every item."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths
        self.own = np.random.default_rng(5)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker = info.id if info is not None else 0
        for number in range(self.lengths[worker]):
            yield {"worker": worker, "number": number, **self.draws()}

    def draws(self) -> dict[str, Any]:
        return {"torch": torch.rand(2), "random": random.random(), "numpy": np.random.rand(), "own": self.own.random()}


class Sized(Shares):
    """Says how long it is, and is not."""

    def __len__(self) -> int:
        return 3


class Halves(IterableDataset[int]):
    """A range, shared out by `get_worker_info()`."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return iter(range(info.id, self.length, info.num_workers) if info is not None else range(self.length))


class Failing(IterableDataset[int]):
    """An iterator that raises for some numbers and goes on behind them, unless it is a generator."""

    def __init__(self, *bad: int, length: int = 12, is_generator: bool = False) -> None:
        self.bad = bad
        self.length = length
        self.is_generator = is_generator

    def __iter__(self) -> Iterator[int]:
        items = Items(self.bad, self.length)
        return (next(items) for _ in range(self.length)) if self.is_generator else items


class Items:
    """The iterator of `Failing`."""

    def __init__(self, bad: tuple[int, ...], length: int) -> None:
        self.bad = bad
        self.length = length
        self.number = -1

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.number += 1
        if self.number >= self.length:
            raise StopIteration
        if self.number in self.bad:
            raise ValueError(f"number {self.number} is bad")
        return self.number


class Refusing(IterableDataset[int]):
    """Cannot even begin."""

    def __iter__(self) -> Iterator[int]:
        raise KeyError("no such stream")


class Nones(IterableDataset[Any]):
    """Has a None in it."""

    def __iter__(self) -> Iterator[Any]:
        return iter([1, None, 3, 4])
