"""Torch's iterators, and what its loaders keep to themselves.

Our iterators derive from torch's. Where a torch has no such classes, they derive from a class that refuses to be made,
`HAS_ITERATORS` is false, and loaders are left to torch altogether.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch.utils.data
from torch.autograd import profiler

from antifreeze.torch_side.frames import BASE_ITERATOR, LOCAL_ITERATOR, WORKERS_ITERATOR
from antifreeze.torch_side.names import optional, required

try:
    # What every iterator of a loader is; the one with workers; the one without.
    from torch.utils.data.dataloader import _BaseDataLoaderIter as BaseIterator
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as WorkersIterator
    from torch.utils.data.dataloader import _SingleProcessDataLoaderIter as LocalIterator

    HAS_ITERATORS = True
except ImportError:
    from antifreeze.torch_side.stand_ins import NoIterator as BaseIterator  # type: ignore[assignment]
    from antifreeze.torch_side.stand_ins import NoIterator as LocalIterator  # type: ignore[assignment]
    from antifreeze.torch_side.stand_ins import NoIterator as WorkersIterator  # type: ignore[assignment]

    HAS_ITERATORS = False
    for _name in (WORKERS_ITERATOR, LOCAL_ITERATOR):
        required(f"torch.utils.data.dataloader:{_name}")
    required(BASE_ITERATOR)

__all__ = ["HAS_ITERATORS", "BaseIterator", "LocalIterator", "WorkersIterator"]

_DataLoader: Any = torch.utils.data.DataLoader

# Begins a pass: draws the seed of data pipes, asks the sampler for an iterator, and sets counters to zero.
reset_base: Callable[..., None] = required("torch.utils.data.dataloader:_BaseDataLoaderIter._reset")

# The `worker_init_fn` that shares a data pipe out. Where torch has no data pipes, nobody asks for it.
share_out_pipe: Callable[..., Any] = optional("torch.utils.data.dataloader:_sharding_worker_init_fn", None)
_PIPES: tuple[type, ...] = tuple(
    kind for name in ("IterDataPipe", "MapDataPipe") if (kind := optional(f"torch.utils.data:{name}", None)) is not None
)

# What stands in for the sampler of an iterable dataset: gives None forever.
EndlessSampler: type = optional("torch.utils.data.dataloader:_InfiniteConstantSampler", type(None))

# Torch's fetchers; an iterator that has another (litdata's) is not like torch's. Without these, none is.
_FETCHERS = tuple(
    optional(f"torch.utils.data._utils.fetch:{name}", None)
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher")
)

# Copies a batch, whatever it is made of, into page-locked memory.
pin_memory: Callable[..., Any] = required("torch.utils.data._utils.pin_memory:pin_memory")

_kinds: Any = required("torch.utils.data:_DatasetKind")

auto_collates: Callable[[Any], bool] = attrgetter("_auto_collation")
"""Whether a loader makes batches of samples itself."""
index_sampler: Callable[[Any], Any] = attrgetter("_index_sampler")
"""The sampler that a loader or an iterator asks: the batch sampler, or the sampler if it does not make batches."""


def is_pipe(dataset: Any) -> bool:
    """Whether this is a data pipe, whose parts torch itself shares out."""
    return isinstance(dataset, _PIPES)


def is_stream(loader: Any) -> bool:
    """Whether a loader, or an iterator, reads an iterable dataset."""
    return bool(loader._dataset_kind == _kinds.Iterable)


def is_torchs_fetcher(fetcher: Any) -> bool:
    """Whether a fetcher does what torch's do."""
    return type(fetcher) in _FETCHERS


def is_profiled() -> bool:
    """Whether torch's profiler is on; if a torch does not say so, it is taken to be, and gets to see every batch."""
    return getattr(profiler, "_is_profiler_enabled", True)


def watch_fetchers(watch: Callable[[bool, Any, Any], tuple[Any, Any]]) -> None:
    """In a worker of torch's: replace dataset and collate_fn as the fetcher is made.

    `watch` gets whether the dataset is iterable, the dataset and collate_fn. For the doctor alone: where torch makes
    fetchers in another way, samples are not noted.
    """
    create = getattr(_kinds, "create_fetcher", None)
    if create is None:
        return

    def create_watched(kind: Any, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> Any:
        dataset, collate_fn = watch(kind == _kinds.Iterable, dataset, collate_fn)
        return create(kind, dataset, auto_collation, collate_fn, drop_last)

    _kinds.create_fetcher = staticmethod(create_watched)


def factory() -> Any:
    """The method of torch's loader that makes an iterator; None: there is none of this name."""
    return getattr(_DataLoader, "_get_iterator", None)


def set_factory(method: Any) -> None:
    """Replace it."""
    _DataLoader._get_iterator = method


def forget_iterator(loader: Any) -> None:
    """Have the loader make a new iterator at the next `iter`, also if it keeps its workers."""
    object.__setattr__(loader, "_iterator", None)
