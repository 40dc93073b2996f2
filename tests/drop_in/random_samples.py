"""Datasets whose samples draw from every generator that there is, and that may end the worker that makes them."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info


class Drawing(Dataset[Any]):
    """Samples draw from the generators of the program and from those that the dataset holds, one made at first use.

    What is fetched is written down in `folder`, and some samples are `deadly`: to the first worker that comes to them.
    """

    def __init__(
        self,
        length: int,
        *,
        folder: Path | None = None,
        deadly: frozenset[int] = frozenset(),
        slow: frozenset[int] = frozenset(),
    ) -> None:
        self.length = length
        self.folder = folder
        self.deadly = deadly
        self.slow = slow
        self.own = np.random.default_rng(3)
        self.torchs = torch.Generator().manual_seed(5)
        self.pythons = random.Random(7)
        self.lazy: np.random.Generator | None = None
        self.opened: str | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self._live_through(index)
        if self.lazy is None:
            self.lazy = np.random.default_rng(11)
            self.opened = "beside it, and not asked for by itself"
        assert self.opened is not None
        held = (
            self.own.random(),
            self.lazy.random(),
            self.pythons.random(),
            torch.rand((), generator=self.torchs).item(),
        )
        return index, torch.rand(3), random.random(), np.random.rand(), *held

    def _live_through(self, index: int) -> None:
        if self.folder is None:
            return
        with (self.folder / "fetched").open("a") as file:
            file.write(f"{index}\n")
        if index in self.slow:
            time.sleep(0.01)
        if index in self.deadly and is_first(self.folder / f"died-at-{index}"):
            os.kill(os.getpid(), signal.SIGKILL)


def is_first(mark: Path) -> bool:
    """Whether nobody has been here before."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class InBatches(Sampler[list[int]]):
    """A batch sampler of a user's own: batches of sizes that it draws as it goes."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[list[int]]:
        left = torch.randperm(self.length).tolist()
        while left:
            size = random.randint(1, 3)
            yield left[:size]
            left = left[size:]


class Stream(IterableDataset[Any]):
    """Every worker reads its share; items draw as those of `Drawing` do. It cannot tell where it is."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.own = np.random.default_rng(3)

    def share(self) -> list[int]:
        info = get_worker_info()
        return list(range(self.length)) if info is None else list(range(info.id, self.length, info.num_workers))

    def item(self, number: int) -> Any:
        return number, torch.rand(3), random.random(), np.random.rand(), self.own.random()

    def __iter__(self) -> Iterator[Any]:
        for number in self.share():
            yield self.item(number)


class StreamWithState(Stream):
    """The dataset itself can tell where it is."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.place = 0

    def __iter__(self) -> Iterator[Any]:
        for number in self.share()[self.place :]:
            self.place += 1
            yield self.item(number)
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class StreamWhoseIteratorHasState(Stream):
    """Its iterators can tell where they are."""

    def __iter__(self) -> Iterator[Any]:
        return _Walk(self)


class _Walk:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.place = 0

    def __iter__(self) -> "_Walk":
        return self

    def __next__(self) -> Any:
        left = self.stream.share()[self.place :]
        if not left:
            raise StopIteration
        self.place += 1
        return self.stream.item(left[0])

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]
