"""What is measured: datasets as small as they can be, so that the loader and not the dataset is timed.

A workload is either a *rate* (batches per second in the steady state; ours over torch's must reach `floor`) or a
*start* (seconds from `iter()` to the first batch; ours may take `allowance_s` longer than torch's). To add one, add a
dataset and an entry to `WORKLOADS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset


@dataclass(frozen=True, slots=True)
class Rate:
    """Batches per second, once everything runs."""

    floor: float
    """The median of ours over torch's must be at least this."""
    batches: int
    """How many are timed: about two to four seconds of torch's on two cores."""


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from `iter()` to the first batch."""

    allowance_s: float
    """The median of ours minus torch's must be at most this."""


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    make_dataset: Callable[[int], Dataset[Any]]
    """Builds the dataset, given how many samples it must have at least."""
    batch_size: int
    goal: Rate | Start
    start_method: str | None = None
    """None: whatever torch takes by default."""


class Images(Dataset[torch.Tensor]):
    """3 by 224 by 224 float32 out of memory; 256 different ones (154 MB), over and over."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.images = torch.rand(256, 3, 224, 224, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.images[index % len(self.images)]


class Integers(Dataset[int]):
    """The least that a sample can be."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class SmallTensors(Dataset[dict[str, torch.Tensor]]):
    """Ten tensors of 32 floats in a dict; 1,024 different samples, over and over."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rows = torch.rand(1024, 10, 32, generator=torch.Generator().manual_seed(1))
        self.names = tuple(f"feature_{number}" for number in range(10))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, self.rows[index % len(self.rows)], strict=True))


class Paths(Dataset[int]):
    """A million path strings in a list, as image folders have them; the files do not exist and are not read."""

    def __init__(self, length: int) -> None:
        self.paths = [f"/data/train/{number % 1000:03}/{number:07}.jpg" for number in range(max(length, 1_000_000))]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        return hash_of(self.paths[index])


def hash_of(path: str) -> int:
    """A number that depends on the path alone: Python's own `hash` differs from process to process."""
    return int.from_bytes(path.encode()[-11:-4], "big")


WORKLOADS = (
    Workload(
        "float32_38mb", "64x3x224x224 float32 from memory, 38 MB a batch", Images, 64, Rate(floor=2.5, batches=100)
    ),
    Workload("ints", "single ints, 64 a batch", Integers, 64, Rate(floor=3.5, batches=6000)),
    Workload("dict_of_ten", "dict of ten 32-float tensors, 32 a batch", SmallTensors, 32, Rate(floor=6.0, batches=600)),
    Workload("first_batch_1m_paths", "first batch, 1 million paths", Paths, 64, Start(allowance_s=0.1), "fork"),
)
