"""The way back: classes and functions of the trainer return as references, never as copies.

A worker of a clean stem knows those that came to it by value, by their number. A worker of a grown stem has inherited
the trainer's own, at the same addresses. cloudpickle alone would send a class by value: the trainer would get another
class of the same name, or, worse, the worker's state set on its own.
"""

from __future__ import annotations

import gc
import io
import pickle
import types
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import cloudpickle

from antifreeze.errors import SampleFailed

Find = Callable[[Any], Any]
"""The trainer's object behind a reference in a result."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """A class or function that a forked worker has from the trainer: where it lies, and what to look for there."""

    address: int
    kind: str
    module: str | None
    name: str


_numbers: dict[int, int] | None = None
_kept: list[Any] = []
_inherited: dict[int, tuple[Any, Inherited]] = {}


def remember(objects: list[Any]) -> None:
    """In a clean stem: these objects came from the trainer by value, in this order; they go back as their number."""
    global _numbers
    _kept.extend(objects)  # an id is good only while its object lives
    _numbers = {id(thing): number for number, thing in enumerate(objects)}


def _refuse(thing: Any) -> Any:
    raise TypeError(f"cannot pickle {type(thing).__name__!r} object")


class ResultPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what plain pickle cannot: by value, but for what the trainer has already."""

    # cloudpickle would send an open file as its text, and a view as bytes: something else than what the dataset made.
    dispatch_table = ChainMap[Any, Any](  # noqa: RUF012 - pickle looks for it on the class
        dict.fromkeys((memoryview, io.TextIOWrapper), _refuse), cloudpickle.Pickler.dispatch_table
    )

    def persistent_id(self, thing: Any) -> int | Inherited | None:
        """A reference to this object, if it is the trainer's."""
        if _numbers is not None:
            return _numbers.get(id(thing))
        return _reference(thing) if goes_by_value(thing) else None


def goes_by_value(thing: Any) -> bool:
    """Whether this is a class or function that cloudpickle would send by value."""
    if not isinstance(thing, type | types.FunctionType):
        return False
    # The trainer cannot import `__main__` again, and cloudpickle sends what is in it by value.
    return thing.__module__ == "__main__" or not _is_importable(thing)


def find_inherited(reference: Inherited) -> Any:
    """In the trainer: the class or function that a worker has inherited."""
    wanted = reference.kind, reference.module, reference.name
    for thing in chain(gc.get_objects(), _all_classes()):  # a collector that was frozen does not show what it has
        if id(thing) == reference.address and _describe(thing) == wanted:
            return thing
    raise SampleFailed(
        f"a batch refers to {reference.module}.{reference.name}, which is no longer in this program",
        why="it was there when the workers were started",
        try_=f"keep a reference to {reference.name} while the loader runs, or define it at the top of a module",
    )


def dump(thing: Any) -> bytes:
    """In the worker: something small that is not a batch, such as an error."""
    try:
        return pickle.dumps(thing)
    except Exception:  # whatever a class of the user's raises: the other pickler can do more, or says what is wrong
        stream = io.BytesIO()
        ResultPickler(stream).dump(thing)
        return stream.getvalue()


def dump_small(thing: Any, *, most_bytes: int) -> bytes:
    """As `dump`, for something that need not arrive: ValueError as soon as it turns out to be larger than this."""
    stream = _Bounded(most_bytes)
    _SmallPickler(stream).dump(thing)
    return stream.getvalue()


class _Bounded(io.BytesIO):
    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self.most_bytes = most_bytes

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > self.most_bytes:
            raise ValueError(f"more than {self.most_bytes} bytes")
        return super().write(data)


class _SmallPickler(ResultPickler):
    """Refuses large arrays and tensors before they are copied into a pickle."""

    def __init__(self, stream: _Bounded) -> None:
        super().__init__(stream)
        self._most_bytes = stream.most_bytes

    def persistent_id(self, thing: Any) -> int | Inherited | None:
        """A reference to this object, if it is the trainer's."""
        size = getattr(thing, "nbytes", 0) if type(thing).__module__ in ("torch", "torch.storage", "numpy") else 0
        if isinstance(size, int) and size > self._most_bytes:
            raise ValueError(f"more than {self._most_bytes} bytes")
        return super().persistent_id(thing)


def load(raw: bytes, find: Find) -> Any:
    """In the trainer: what `dump` made."""
    unpickler = _ResultUnpickler(io.BytesIO(raw))
    unpickler.find = find
    return unpickler.load()


class _ResultUnpickler(pickle.Unpickler):
    find: Find

    def persistent_load(self, reference: Any) -> Any:
        return self.find(reference)


def _reference(thing: Any) -> Inherited | None:
    """A reference to what was there before the fork; None for what was made in this worker."""
    known = _inherited.get(id(thing))
    if known is None:
        # The stem has frozen all that it inherited: the collector shows only what came later.
        if any(other is thing for other in gc.get_objects()):
            return None
        known = thing, Inherited(id(thing), *_describe(thing))
        _inherited[id(thing)] = known  # with the object, for an id is good only while it lives
    return known[1]


def _all_classes() -> Iterator[type]:
    waiting: list[type] = [object]
    seen: set[int] = set()
    while waiting:
        kind = waiting.pop()
        if id(kind) not in seen:
            seen.add(id(kind))
            yield kind
            waiting.extend(type.__subclasses__(kind))


def _describe(thing: Any) -> tuple[str, str | None, str]:
    name = getattr(thing, "__qualname__", "")
    return type(thing).__name__, getattr(thing, "__module__", None), name if isinstance(name, str) else ""


def _is_importable(thing: Any) -> bool:
    try:
        pickle.dumps(thing)
    except Exception:  # pickle's ways to say no are many
        return False
    return True
