"""The user's code of a trial: a dataset with random augmentation of every kind, batches of several shapes, and a sampler.

Importable, so that workers of clean stems can have it. Without faults it is what torch runs for comparison.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, default_collate, get_worker_info

from chaos.faults import Point
from chaos.sabotage import Sabotage

_CALM = Sabotage()


class Tag:
    """An object of the user's in a batch, that takes part in its own pickling."""

    def __init__(self, text: str, sabotage: Sabotage) -> None:
        self.text = text
        self._sabotage = sabotage

    def __reduce__(self) -> tuple[Any, ...]:
        self._sabotage.reach(Point.WRITING)
        return _tag, (self.text,)


def _tag(text: str) -> Tag:
    return Tag(text, _CALM)


class Augmented(Dataset[Any]):
    """Samples that depend on the index, on the global generators, and on generators that the dataset holds."""

    def __init__(self, length: int, *, shape: str, sabotage: Sabotage) -> None:
        self.length = length
        self.shape = shape
        self.sabotage = sabotage
        self.generator = torch.Generator().manual_seed(5)
        self.rng = np.random.default_rng(6)
        self.dice = random.Random(7)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        crop = torch.rand(3, 8, 8)
        self.sabotage.fetch(index)  # some draws made, some not
        flip, shift = random.random(), np.random.normal(size=4)
        noise = torch.rand(5, generator=self.generator)
        own = self.rng.integers(1 << 30), self.dice.random()
        if self.shape == "tuple":
            return index, crop, torch.tensor([flip, *own]), shift, noise
        if self.shape == "large":
            return {"index": index, "crop": crop.repeat(1, 12, 12) + index, "noise": noise, "drawn": [flip, *own]}
        sample = {"index": index, "crop": crop, "flip": flip, "shift": shift, "noise": noise, "own": own}
        if self.shape == "ragged":
            sample["tail"] = torch.rand(1 + 40 * (index % 97))
        if self.shape == "outliers":  # most batches have a few kilobytes, some have megabytes
            sample["tail"] = torch.rand(500_000 if index % 37 == 0 else 10)
        return sample


class Flowing(IterableDataset[Any]):
    """The same samples as a stream, shared out among the workers item by item."""

    def __init__(self, samples: Augmented) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        return (self.samples[index] for index in range(info.id, len(self.samples), info.num_workers))


class Collated:
    """Batches of other kinds than torch's default makes, with draws of their own."""

    def __init__(self, shape: str, sabotage: Sabotage) -> None:
        self.shape = shape
        self.sabotage = sabotage

    def __call__(self, samples: list[Any]) -> Any:
        jitter = torch.rand(2)
        self.sabotage.reach(Point.COLLATING)
        if self.shape in ("ragged", "outliers"):
            return {"samples": samples, "jitter": jitter}
        if self.shape == "tagged":
            tags = [Tag(f"sample {sample['index']}", self.sabotage) for sample in samples]
            return default_collate(samples), tags, jitter, np.random.random(3)
        return default_collate(samples), jitter


class Start:
    """A `worker_init_fn`."""

    def __init__(self, sabotage: Sabotage) -> None:
        self.sabotage = sabotage

    def __call__(self, worker: int) -> None:
        self.sabotage.be_born(worker)


class Order(Sampler[list[int]]):
    """Batches of indices in a random order, anew for every epoch; what was drawn is kept."""

    def __init__(self, length: int, *, batch_size: int) -> None:
        self.length = length
        self.batch_size = batch_size
        self.drawn: list[list[list[int]]] = []

    def __len__(self) -> int:
        return math.ceil(self.length / self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.length).tolist()
        self.drawn.append([order[k : k + self.batch_size] for k in range(0, self.length, self.batch_size)])
        yield from self.drawn[-1]


def seed_all(seed: int) -> None:
    """Begin as a program that cares for reproducible results does."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def digest(batch: Any) -> str:
    """A fingerprint of every bit of a batch, and of its structure."""
    fingerprint = hashlib.sha256()
    _add(batch, fingerprint.update)
    return fingerprint.hexdigest()


def _add(part: Any, add: Callable[[bytes], None]) -> None:
    add(type(part).__qualname__.encode())
    if isinstance(part, torch.Tensor):
        add(f"{part.dtype} {tuple(part.shape)} {part.stride()}".encode())
        add(part.contiguous().numpy().tobytes())
    elif isinstance(part, np.ndarray):
        add(f"{part.dtype} {part.shape}".encode())
        add(part.tobytes())
    elif isinstance(part, dict):
        for key, value in part.items():
            add(repr(key).encode())
            _add(value, add)
    elif isinstance(part, list | tuple):
        add(str(len(part)).encode())
        for value in part:
            _add(value, add)
    elif isinstance(part, Tag):
        add(part.text.encode())
    else:
        add(repr(part).encode())
