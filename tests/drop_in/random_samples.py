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
from torch.utils.data import Dataset, Sampler


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

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self._live_through(index)
        if self.lazy is None:
            self.lazy = np.random.default_rng(11)
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
