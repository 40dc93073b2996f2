"""The engines: how each is asked for the same thing.

An engine turns a `Task` into an iterable; every `iter()` of it is one epoch of batches made of torch tensors, in order.
All get the same number of worker processes, the same prefetching and one thread in each worker, as near as their
interface permits; `how` says how near, and goes into the report as it stands. An engine is imported when it is used and not
before: a process that measures torch has nothing of the others in it.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from workloads import PREFETCH_FACTOR, Alternating, Starts, Workload

TORCH, OURS, AGAIN, INLINE = "torch", "antifreeze", "torch_again", "inline"


@dataclass(frozen=True, slots=True)
class Task:
    """What to load, and with what."""

    dataset: Any
    batch_size: int
    workers: int
    start_method: str | None
    samples: range | None = None
    """The indices of an epoch; None: all of the dataset."""
    keep_workers: bool = False
    pin_memory: bool = False
    our_options: Mapping[str, Any] = field(default_factory=dict)
    """For antifreeze's loader alone."""

    @property
    def arguments(self) -> dict[str, Any]:
        """As torch's DataLoader and all that imitate it take them."""
        return {
            "batch_size": self.batch_size,
            "sampler": self.samples,
            "num_workers": self.workers,
            "prefetch_factor": PREFETCH_FACTOR,
            "collate_fn": self.dataset.collate,
            "multiprocessing_context": self.start_method,
            **({"pin_memory": True} if self.pin_memory else {}),  # which not all of them take
        }


@dataclass(frozen=True, slots=True)
class Engine:
    name: str
    title: str
    how: str
    """How it is set up, and why that is its equivalent of torch's settings."""
    open: Callable[[Task], Iterable[Any]]
    module: str = "torch"
    package: str = "torch"
    draws_as_torch: bool = True
    """Whether the random numbers that samples draw in its workers are those of torch's workers."""
    keeps_workers: bool = True
    """Whether workers can be kept from one epoch to the next."""

    def why_not(self, workload: Workload) -> str | None:
        """Why there is no figure of this engine for a workload; None if there is one."""
        if not is_importable(self.module):
            return f"{self.package} is not installed"
        return workload.left_out.get(self.name) or self._why_not_kept(workload)

    def _why_not_kept(self, workload: Workload) -> str | None:
        needs_kept = isinstance(workload.kind, Alternating) and workload.kind.keep_workers
        return "keeps no workers from one epoch to the next" if needs_kept and not self.keeps_workers else None

    def figures_of(self, workload: Workload) -> tuple[str, ...]:
        """The figures that this engine has for a workload."""
        if isinstance(workload.kind, Starts) and not self.keeps_workers:
            return tuple(figure for figure in workload.figures if figure != "next_epoch_kept")
        return workload.figures


def is_importable(module: str) -> bool:
    """Whether the top of a dotted name can be found; nothing is imported."""
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def open_torch(task: Task) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    return DataLoader(task.dataset, persistent_workers=task.keep_workers, **task.arguments)


def open_ours(task: Task) -> Iterable[Any]:
    from antifreeze import DataLoader

    return DataLoader(task.dataset, persistent_workers=task.keep_workers, **task.arguments, **task.our_options)


def open_inline(task: Task) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    return DataLoader(
        task.dataset, batch_size=task.batch_size, sampler=task.samples, collate_fn=task.dataset.collate, num_workers=0
    )


def open_torchdata(task: Task) -> Iterable[Any]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(task.dataset, persistent_workers=task.keep_workers, **task.arguments)


def open_spdl(task: Task) -> Iterable[Any]:
    from spdl.dataloader import get_pytorch_dataloader

    return get_pytorch_dataloader(OneThread(task.dataset), in_order=True, **task.arguments)


class OneThread:
    """A dataset that takes torch's threads from the worker it arrives in, as torch's own workers do by themselves."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __setstate__(self, state: dict[str, Any]) -> None:
        import torch

        torch.set_num_threads(1)
        self.__dict__.update(state)


def open_grain(task: Task) -> Iterable[Any]:
    return GrainLoader(task)


class GrainLoader:
    """Grain's pipeline over a map-style dataset; every `iter()` starts workers, as Grain does."""

    def __init__(self, task: Task) -> None:
        import grain
        import torch

        # The draw that torch makes for every epoch, and that the seeds of its workers follow from.
        base_seed = int(torch.empty((), dtype=torch.int64).random_().item())
        length = len(task.dataset if task.samples is None else task.samples)
        # num_threads=0: the one thread of a worker loads, as in torch's (and as Grain advises for data in memory).
        batches = (
            grain.MapDataset.source(GrainSource(task.dataset, length))
            .batch(task.batch_size, batch_fn=GrainCollate(task.dataset.collate))
            .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
            .mp_prefetch(
                grain.MultiprocessingOptions(num_workers=task.workers, per_worker_buffer_size=PREFETCH_FACTOR),
                worker_init_fn=GrainBirth(base_seed),
            )
        )
        small = grain.experimental.DatasetOptions(min_shm_size=64 * 1024)
        self._batches = grain.experimental.WithOptionsIterDataset(batches, small)

    def __iter__(self) -> Iterator[Any]:
        with closing(iter(self._batches)) as batches:
            for batch in batches:
                yield with_leaves(batch, as_tensor)


@dataclass(frozen=True)
class GrainSource:
    dataset: Any
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[int(index)]


@dataclass(frozen=True)
class GrainCollate:
    """The collate function of the others, as numpy arrays: only those travel through Grain's shared memory."""

    collate: Callable[[list[Any]], Any] | None

    def __call__(self, samples: Any) -> Any:
        from torch.utils.data import default_collate

        return with_leaves((self.collate or default_collate)(list(samples)), as_array)


@dataclass(frozen=True)
class GrainBirth:
    """Does in Grain's workers what torch does in its own: one thread, and Python's `random` seeded by number."""

    base_seed: int

    def __call__(self, worker: int, workers: int) -> None:
        import torch

        torch.set_num_threads(1)
        random.seed(self.base_seed + worker)


def as_array(tensor: Any) -> Any:
    return tensor.numpy()


def as_tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)


def with_leaves(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The same containers, with every leaf changed."""
    if isinstance(batch, Mapping):
        return {name: with_leaves(value, change) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [with_leaves(value, change) for value in batch]
    return change(batch)


ENGINES = {
    engine.name: engine
    for engine in (
        Engine(TORCH, "torch", "`torch.utils.data.DataLoader`, the measure of all others.", open_torch),
        Engine(
            OURS, "antifreeze", "`antifreeze.DataLoader` with the same arguments.", open_ours, "antifreeze.loader", OURS
        ),
        Engine(
            INLINE,
            "num_workers=0",
            "torch's `DataLoader` without workers: the trainer loads, and nothing is sent.",
            open_inline,
            draws_as_torch=False,
        ),
        Engine(
            "torchdata",
            "torchdata",
            "`StatefulDataLoader` with the same arguments, and otherwise its defaults (a snapshot of its state at every "
            "batch).",
            open_torchdata,
            "torchdata.stateful_dataloader",
            "torchdata",
        ),
        Engine(
            "spdl",
            "SPDL",
            "`spdl.dataloader.get_pytorch_dataloader`, its loader for map-style datasets, with the same arguments and "
            "`in_order=True`. The dataset sets torch's threads to one when it arrives in a worker. Which worker takes a "
            "batch is chance, so random numbers cannot be torch's. (Its shared-memory arena is experimental, belongs to "
            "`iterate_in_subprocess`, which has one process, and is not part of any loader of SPDL's.)",
            open_spdl,
            "spdl.dataloader",
            "spdl_core",
            draws_as_torch=False,
            keeps_workers=False,
        ),
        Engine(
            "grain",
            "Grain",
            "`MapDataset.source(…).batch(…).to_iter_dataset(…).mp_prefetch(…)`: `num_workers` processes, "
            "`per_worker_buffer_size` is `prefetch_factor`, `ReadOptions(num_threads=0)`, so that a worker has one "
            "thread. Batch *k* comes from worker *k* mod *n*, as with torch. Batches are made by torch's collate function "
            "and travel as numpy arrays, which is what its shared memory carries; the consumer takes them as tensors "
            "without a copy. `min_shm_size` is 64 KiB, which makes small batches twice as fast as its default of 0. Grain "
            "always spawns its workers.",
            open_grain,
            "grain",
            "grain",
            keeps_workers=False,
        ),
        # For --self-test: torch once more, under another name.
        Engine(AGAIN, "torch again", "`torch.utils.data.DataLoader` once more.", open_torch),
    )
}
PEERS = ("torchdata", "spdl", "grain")
