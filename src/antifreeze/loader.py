"""`antifreeze.DataLoader`: torch's loader, on our engine. The front door, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch.utils.data
from torch.utils.data import Dataset, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from antifreeze.errors import ConfigError
from antifreeze.iterator import Iterator
from antifreeze.settings import Mode, mode

T_co = TypeVar("T_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """A drop-in for `torch.utils.data.DataLoader`: the same arguments, the same batches, other workers.

    `worker_threads`: how many threads the pools of native libraries (OpenMP, BLAS) may use in each worker; None: as many
    as they like. torch itself uses one, as in torch's own workers.
    """

    worker_threads: int | None

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        worker_threads: int | None = 1,
        **future: Any,
    ) -> None:
        if worker_threads is not None and worker_threads < 1:
            raise ConfigError(
                f"worker_threads={worker_threads} cannot work",
                why="a worker needs at least one thread",
                try_="worker_threads=1, or None for as many as libraries like",
            )
        self.worker_threads = worker_threads
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
            **future,
        )

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0 or mode() is Mode.OFF:
            return super()._get_iterator()
        self.check_worker_number_rationality()
        return Iterator(self)
