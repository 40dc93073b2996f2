"""Where a worker is, between two tickets: its generators, what its dataset says of itself, how far its stream was read.

As bytes, for a worker that takes over, and for the trainer, which keeps them until somebody wants to know.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection
from typing import Any, Literal, NamedTuple

import torch
from torch.utils.data import IterableDataset

from antifreeze.engine.wire.messages import dump_index
from antifreeze.engine.worker.randomness import Randomness

# Packages whose state leaves out the items in a shuffle buffer: they would be lost. Such a stream is read again.
_FORGETFUL = ("datasets",)
# Indices to be tried out: what user code does once in a worker it does at the first of them, or soon after it.
FEW = 16
# There is little room for a place on the board, and most of it is for generators.
MOST_BYTES = 4096


Position = Literal["start", "before", "here", "end", "unknown"]


class Place(NamedTuple):
    """One place."""

    position: Position
    """Before a stream is read from its start, or the first sample is fetched; before the first item of a stream, by what
    the dataset says of itself; between two batches; when nothing more comes of it; or user code could not tell."""
    generators: bytes = b""
    """As `Randomness` gives them."""
    of_dataset: Any = None
    """What the dataset's own `state_dict` says; of an unknown place, what was raised, as text."""
    of_iterator: Any = None
    """What the `state_dict` of its iterator says; if the dataset is its own iterator, it is said here alone."""
    shared_out: int = 0
    """How many items of a stream were shared out among workers (`fix="shard"`)."""
    passes: Any = None
    """At the start of a pass: what the dataset has counted of those before it, as `PassCounters` tells it."""
    tried: bytes | None = None
    """Indices for whoever takes over to try out, as `to_try_out` gives them; empty: none; None: those that come next."""

    def dump(self) -> bytes:
        """As bytes."""
        return pickle.dumps(tuple(self), 5)


def load_place(raw: bytes) -> Place:
    """The place that these bytes are."""
    return Place(*pickle.loads(raw))


def to_try_out(index: Any, *, batched: bool, leave_out: Collection[int] = ()) -> bytes:
    """The first samples of an index that is done, pickled: to fetch one of them again changes nothing that is to come."""
    try:
        few = [i for position, i in enumerate(index[:FEW]) if position not in leave_out] if batched else [index]
        raw = dump_index(few)
        if len(raw) > MOST_BYTES:
            raw = dump_index(few[:1])
    except Exception:  # a sampler may yield anything
        return b""
    return raw if len(raw) <= MOST_BYTES else b""


def rest_of(
    position: str, of_dataset: Any = None, of_iterator: Any = None, shared_out: int = 0, passes: Any = None
) -> bytes:
    """A place but for its generators."""
    return pickle.dumps((position, of_dataset, of_iterator, shared_out, passes), 5)


def has_state(thing: Any) -> bool:
    """Whether a dataset, or the iterator of one, can say where it is and be told where to go on."""
    if type(thing).__module__.partition(".")[0] in _FORGETFUL:
        return False
    if isinstance(thing, IterableDataset) and getattr(type(thing), "state_dict", None) is torch.nn.Module.state_dict:
        return False  # weights, and not where the stream is
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def state_of(thing: Any) -> Any:
    """What it says; None if it cannot."""
    return thing.state_dict() if has_state(thing) else None


class MapPlace:
    """The place of a worker whose dataset has indices: its generators, and the dataset's own state if it has one."""

    def __init__(self, dataset: Any, randomness: Randomness) -> None:
        """`dataset`: None if it is not to be asked for its state."""
        self._dataset = dataset
        self._randomness = randomness

    def with_generators(self, position: Position, generators: bytes, tried: bytes | None = None) -> bytes:
        """The place as it is now."""
        return Place(position, generators, state_of(self._dataset), tried=tried).dump()

    def rest(self, position: Position) -> bytes:
        """The same without generators."""
        return rest_of(position, state_of(self._dataset))

    def restore(self, place: Place) -> None:
        """Go where another worker was."""
        if place.of_dataset is not None and has_state(self._dataset):
            self._dataset.load_state_dict(place.of_dataset)
        self._randomness.restore(place.generators, waits=True)
