"""`antifreeze.StatefulDataLoader`: a loader that says how far it is, and goes on from there another time.

A class of its own: the mere presence of `state_dict` changes what Lightning and accelerate do.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch.utils.data import Dataset, Sampler

from antifreeze import drawing
from antifreeze.engine.plan.progress import check_same, from_state, to_state
from antifreeze.engine.turns import Turn, new_turn
from antifreeze.engine.worker.birth import new_generator
from antifreeze.errors import CheckpointError, ConfigError
from antifreeze.loader import DataLoader
from antifreeze.observe.beside import Beside
from antifreeze.option_values import Seeding
from antifreeze.options import options_of
from antifreeze.policy import OnError
from antifreeze.resuming import Loaded, StatefulIterator, open_state, under_way
from antifreeze.resuming_alone import InlineIterator, StatefulTicketIterator
from antifreeze.torch_side.loaders import BaseIterator, forget_iterator, index_sampler, is_stream

T_co = TypeVar("T_co", covariant=True)


@dataclass(slots=True)
class _Record:
    """What is kept about a loader between its passes."""

    iterator: StatefulIterator | InlineIterator | None = None
    """Of the pass under way, or of the last one."""
    is_ahead: bool = False
    """Whether it was made for `state_dict()`, and waits for the next `iter()`."""
    loaded: Loaded | None = None
    """What the next pass is to begin with."""
    state: dict[str, Any] | None = None
    """The same, as it was loaded."""
    is_beginning: bool = False
    """Whether a pass is being begun."""
    turn: Turn = field(default_factory=new_turn)
    """Held by the thread that begins a pass, or asks for the state."""


# Beside the loaders, not in them: clients copy, pickle and rebuild loaders by all that they find in them.
_records: Beside[_Record] = Beside()


class StatefulDataLoader(DataLoader[T_co]):
    """A `DataLoader` that can be stopped in the middle of an epoch and taken up there: the API of torchdata's.

    `state_dict()` says how far the pass under way has got; `load_state_dict(state)` has the next `iter()` go on from there,
    with the batch that would have come next, in this program or in another one. Nothing that was delivered is fetched
    again. The state is plain data, which `torch.load(weights_only=True)` and JSON can hold.

    It belongs to a loader of the same kind: dataset length, batch size, sampler and number of workers are checked; with
    seeding="ticket" the number of workers may differ. What the training itself draws from the generators of torch, `random`
    and numpy is not part of it, and not changed by it.

    A dataset, a sampler, or the iterator of one, that has `state_dict` and `load_state_dict` is asked for its own state. An
    iterable dataset without is read again from the start of the epoch. Without a `generator=`, the loader has one of its
    own, seeded once from torch's.

    `snapshot_every_n_steps`: workers say where they are about so often; what they have done since then, up to the state,
    is done again by those that take it up. 0 or None: never; then all of the epoch is. With `in_order=False` they always
    do.
    """

    snapshot_every_n_steps: int | None

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
        snapshot_every_n_steps: int | None = 1,
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
        if isinstance(snapshot_every_n_steps, bool) or not (
            snapshot_every_n_steps is None or (isinstance(snapshot_every_n_steps, int) and snapshot_every_n_steps >= 0)
        ):
            raise ConfigError(
                f"snapshot_every_n_steps={snapshot_every_n_steps!r} cannot work",
                why="it is a number of batches, or 0 or None for never",
                try_="snapshot_every_n_steps=1",
            )
        self.snapshot_every_n_steps = snapshot_every_n_steps
        if generator is None:  # so that later epochs do not depend on what the training draws from torch's
            generator = new_generator(int(torch.empty((), dtype=torch.int64, device="cpu").random_().item()))
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
            worker_threads=worker_threads,
            on_error=on_error,
            max_lost=max_lost,
            stall_after=stall_after,
            sample_timeout=sample_timeout,
            hedge=hedge,
            replay=replay,
            fix=fix,
            seeding=seeding,
            ledger_file=ledger_file,
            **future,
        )

    def state_dict(self) -> dict[str, Any]:
        """How far the pass under way has got, or the last one; before the first, one is begun for it."""
        record = self._antifreeze_record
        with record.turn:
            if record.state is not None:
                return copy.deepcopy(record.state)
            if record.is_beginning:
                raise under_way("a pass is being begun")
            if record.iterator is None:
                iter(self)
                record.is_ahead = True
            iterator = record.iterator
        assert iterator is not None
        return to_state(iterator.progress(self))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next pass begin where this state is from; a pass under way ends. An empty state changes nothing."""
        loaded = state = None
        if state_dict != {}:
            loaded, state = self._antifreeze_open(state_dict), copy.deepcopy(state_dict)
            drawing.put_counters_back(self, loaded.progress)  # not later: who sets an epoch after this means it
        record = self._antifreeze_record
        if record.iterator is not None:
            record.iterator.stop()
        forget_iterator(self)
        record.iterator, record.is_ahead = None, False
        record.loaded, record.state = loaded, state

    def _antifreeze_open(self, state: Any) -> Loaded:
        progress = from_state(state)
        check_same(progress.traits, drawing.traits_of(self))
        loaded = open_state(progress)
        if progress.open and not self.num_workers:
            raise CheckpointError(
                "this state has batches that were left out while later ones came, as in_order=False has it",
                try_="num_workers=1 or more",
            )
        try:
            batches = len(index_sampler(self))
        except (TypeError, NotImplementedError):
            return loaded
        if not is_stream(self) and progress.planned > batches:
            raise CheckpointError(
                f"this state is from after batch {progress.planned}, and this loader has {batches} batches",
                try_="a loader like the one that it came from",
            )
        return loaded

    @property
    def _antifreeze_record(self) -> _Record:
        record = _records.get(self)
        if record is None:
            record = _records.keep(self, _Record())
        return record

    def __iter__(self) -> BaseIterator:
        record = self._antifreeze_record
        with record.turn:
            if record.is_ahead and record.iterator is not None:
                record.is_ahead = False
                return record.iterator
            # A pass that was taken up after its last batch has made none, and so no generator that is made at first use.
            awaited = record.iterator.awaited if isinstance(record.iterator, InlineIterator) else {}
            record.iterator, record.is_beginning = None, True
            try:
                iterator: Any = super().__iter__()
            finally:
                record.is_beginning = False
            if awaited and record.loaded is None and isinstance(iterator, InlineIterator):
                iterator.put_back(awaited)
            record.iterator, record.loaded, record.state = iterator, None, None
        return iterator  # type: ignore[no-any-return]

    def _get_iterator(self) -> BaseIterator:
        loaded = self._antifreeze_record.loaded
        if self.num_workers == 0:
            by_ticket = options_of(self).seeding == "ticket"
            return (StatefulTicketIterator if by_ticket else InlineIterator)(self, loaded)
        self.check_worker_number_rationality()
        return StatefulIterator(self, loaded)
