"""Builds the loader of a case, on either engine."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import (
    ChainDataset,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from differential.loaders import parts
from differential.loaders.case import BATCH_SAMPLERS, Case
from differential.loaders.datasets import Items, ItemsAtOnce, Nature, Stream, StreamObject, StreamWithLength
from differential.loaders.samples import sample


@dataclass(slots=True)
class Built:
    """A loader, and what the user keeps of its parts."""

    loader: DataLoader[Any]
    dataset: Any
    items: Items
    """The dataset at the bottom, which the trainer changes between passes."""
    sampler: Any
    generator: torch.Generator | None


def build(case: Case, loader_class: type[DataLoader[Any]]) -> Built:
    """Build the loader of a case."""
    items = _items(case.nature)
    dataset = _dataset(case, items)
    generator = None if case.generator_seed is None else torch.Generator().manual_seed(case.generator_seed)
    options = dict(case.options)
    sampler = None
    if case.sampler == "shuffle":
        options["shuffle"] = True
    elif case.sampler in BATCH_SAMPLERS:
        kind = parts.Batches if case.sampler == "batches" else parts.BatchesWithLength
        options["batch_sampler"] = kind(max(len(dataset), 1), case.seed)
    elif case.sampler is not None:
        sampler = options["sampler"] = _sampler(case, dataset, generator)
    if generator is not None:
        options["generator"] = generator
    if case.collate is not None:
        made = parts.COLLATE_FUNCTIONS[case.collate]
        options["collate_fn"] = made() if isinstance(made, type) else made
    if case.init is not None:
        options["worker_init_fn"] = parts.INIT_FUNCTIONS[case.init]
    if case.options["num_workers"]:
        options |= _context(case)
    return Built(loader_class(dataset, **options), dataset, items, sampler, generator)


def _items(nature: Nature) -> Items:
    return ItemsAtOnce(nature) if nature.has_getitems else Items(nature)


def _dataset(case: Case, items: Items) -> Any:
    second = _items(case.second)
    sharing = {"is_sharded": case.is_sharded, "is_uneven": case.is_uneven}
    match case.shape:
        case "stream":
            return Stream(items, **sharing)
        case "stream object":
            return StreamObject(items, **sharing)
        case "stream with length":
            return StreamWithLength(items, **sharing, length=case.claimed_length)
        case "chain":
            return ChainDataset([Stream(items, **sharing), Stream(second, **sharing)])
        case "concat":
            return ConcatDataset([items, second])
        case "sum":
            return items + second
        case "subset":
            return Subset(items, [i for i in range(len(items)) if i % 3 != 1])
        case "stack":
            return StackDataset(items, second)
        case "stack by name":
            return StackDataset(a=items, b=second)
        case "list":
            return [sample(case.nature.kind, i, 0.25) for i in range(len(items))]
        case "tensors":
            return TensorDataset(torch.arange(float(len(items))), torch.rand(len(items), 3))
        case _:
            return items


def _sampler(case: Case, dataset: Any, generator: torch.Generator | None) -> Any:
    length, seed = len(dataset), case.seed
    match case.sampler:
        case "own generator":
            return parts.ShuffleByOwnGenerator(length, seed)
        case "one by one":
            return parts.DrawOneByOne(length, case.source, case.sampler_fails_at)
        case "weighted":
            weights = torch.arange(1.0, length + 1)
            return WeightedRandomSampler(weights, length + 2, generator=generator if seed % 2 else None)
        case "subset":
            return SubsetRandomSampler(range(0, length, 2))
        case "distributed":
            return DistributedSampler(
                dataset, num_replicas=2, rank=1, shuffle=seed % 3 > 0, seed=seed, drop_last=seed % 2 == 0
            )
        case "replacement":
            return RandomSampler(dataset, replacement=True, num_samples=length + 3, generator=generator)
        case _:
            return list(range(length))[::-1]


def _context(case: Case) -> dict[str, Any]:
    match case.context:
        case "multiprocessing":
            return {"multiprocessing_context": multiprocessing.get_context(case.method)}
        case "torch":
            return {"multiprocessing_context": torch.multiprocessing.get_context(case.method)}
        case "default":
            multiprocessing.set_start_method(case.method, force=True)
            return {}
        case _:
            return {"multiprocessing_context": case.method}
