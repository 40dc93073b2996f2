"""`antifreeze.DataLoader`: torch's loader, on our engine. The front door, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch.utils.data
from torch.utils.data import Dataset, IterableDataset, Sampler

from antifreeze import adoption
from antifreeze.errors import ConfigError
from antifreeze.inline import iterator_for
from antifreeze.iterator import Iterator, say_fallback, say_if_not_in_force
from antifreeze.observe.accounts import account_of
from antifreeze.observe.ledger import Ledger
from antifreeze.observe.statistics import Statistics
from antifreeze.option_values import Seeding
from antifreeze.options import Mode, mode, options_of
from antifreeze.policy import OnError
from antifreeze.torch_side import requirements
from antifreeze.torch_side.loaders import HAS_ITERATORS, BaseIterator

T_co = TypeVar("T_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """A drop-in for `torch.utils.data.DataLoader`: the same arguments, the same batches, other workers.

    Where None is given, a variable of the environment decides (`ANTIFREEZE_ON_ERROR` and so on), else the default. With
    num_workers=0, `on_error`, `max_lost`, `seeding` and `ledger_file` mean the same; a sample that hangs is reported after
    `stall_after` or `sample_timeout`, if one is set; what is about workers has no effect.

    `worker_threads`: how many threads the pools of native libraries (OpenMP, BLAS) may use in each worker; None: as many
    as they like. torch itself uses one, as in torch's own workers.

    `on_error`: what is done about a sample whose `dataset[i]` raises, or gives None to torch's default collate. "raise"
    (the default); "skip": the batch becomes smaller by it, and a batch of which nothing is left does not come; "replace":
    another sample takes its place, drawn by seed, the same on every run; `Retry(3, then="skip")`: it is fetched again
    first, with random generators as they were. Errors of collate_fn, sampler and worker_init_fn are always raised.

    `max_lost`: how many samples of an epoch may be skipped or replaced before that is an error: a count (20) or a fraction
    (0.01), which is judged from 1000 samples on, or at the end of the epoch. Default: 0.1, a tenth.

    `stall_after`: seconds after which a sample that is far slower than others, and blocked, is called stuck. Default: 10.

    `sample_timeout`: seconds after which a sample at which workers are blocked is given up. Default: 300 while others
    get on, 1800 if all workers are blocked. A worker that computes, reads or writes is never given up.

    `hedge`: whether a second worker tries what another one is stuck at. Default: True.

    `replay`: whether an iterable dataset gives the same items when it is read again. Default: True; then another worker
    reads on where one died. False, for streams that are consumed (queues, sockets): such a death is an error. It is one by
    default where the dataset, of any kind, holds a pipe or a socket that was there before the workers.

    `fix`: what of torch's results, which are silently wrong, is to be put right. "rng": generators that the dataset holds
    are copies of each other in all workers, and are given seeds of their own. "shard": every worker reads the whole of an
    iterable dataset that does not ask `get_worker_info()`, and is given its share. "stale": kept workers do not see what
    was changed in the dataset, and are started anew. Default: none; where one would help, that is said once.

    `seeding`: what the random numbers of a batch follow from. "torch" (the default): from those before it in the same
    worker, bit for bit as torch's. "ticket": from the seed of the epoch and the number of the batch alone. Then batches are
    the same with any number of workers, 0 included, and a worker that has time takes what waits behind another's slow
    batch. For datasets with indices.

    `ledger_file`: where all that deviates from a calm run is written, as JSON lines. Default: nowhere.
    """

    worker_threads: int | None
    on_error: OnError | None
    max_lost: int | float | None
    stall_after: float | None
    sample_timeout: float | None
    hedge: bool | None
    replay: bool | None
    fix: Iterable[str] | None
    seeding: Seeding | None
    ledger_file: str | os.PathLike[str] | None
    _antifreeze_has_options = True

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
        on_error: OnError | None = None,
        max_lost: int | float | None = None,
        stall_after: float | None = None,
        sample_timeout: float | None = None,
        hedge: bool | None = None,
        replay: bool | None = None,
        fix: Iterable[str] | None = None,
        seeding: Seeding | None = None,
        ledger_file: str | os.PathLike[str] | None = None,
        **future: Any,
    ) -> None:
        self.worker_threads = worker_threads
        self.on_error = on_error
        self.max_lost = max_lost
        self.stall_after = stall_after
        self.sample_timeout = sample_timeout
        self.hedge = hedge
        self.replay = replay
        self.fix = fix
        self.seeding = seeding
        self.ledger_file = ledger_file
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
            **_newest_arguments(in_order=in_order),
            **future,
        )
        if mode() is not Mode.OFF:
            options = options_of(self)  # one that cannot work is said now
            if options.seeding == "ticket":
                _check_has_indices(dataset)
            adoption.remember(self)

    @property
    def ledger(self) -> Ledger:
        """All that deviated from a calm run: every worker that was replaced, every sample that was fetched again, …"""
        return account_of(self).ledger

    def statistics(self) -> Statistics:
        """Where the time has gone so far, and the slowest samples."""
        return account_of(self).statistics()

    def _get_iterator(self) -> BaseIterator:
        if mode() is Mode.OFF:
            say_if_not_in_force(self)
            return super()._get_iterator()
        if not HAS_ITERATORS:
            say_fallback(self, requirements.why_unfit() or "")
            return super()._get_iterator()
        if self.num_workers == 0:
            return iterator_for(self)
        self.check_worker_number_rationality()
        return Iterator(self)


def _newest_arguments(*, in_order: bool) -> dict[str, Any]:
    """What torch's loader does not take in every version is given to it only if it does, or is asked for."""
    return {} if in_order and "in_order" not in requirements.LOADER_ARGUMENTS else {"in_order": in_order}


def _check_has_indices(dataset: Any) -> None:
    """Refuse seeds of tickets where a ticket does not say which samples are meant."""
    if isinstance(dataset, IterableDataset):
        raise ConfigError(
            'seeding="ticket" cannot work with an iterable dataset',
            where="seeding",
            why=f"every worker reads a stream of its own from a {type(dataset).__qualname__}: which items make a batch "
            "depends on the number of workers",
            try_='seeding="torch", or a dataset with __getitem__ and __len__',
        )
