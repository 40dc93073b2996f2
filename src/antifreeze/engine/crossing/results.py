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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

Find = Callable[[Any], Any]
"""The trainer's object behind a reference in a result."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """A class or function that a forked worker has from the trainer: where it lies, and what to look for there."""

    address: int
    kind: str
    module: str | None
    name: str
    by_value: bytes = field(repr=False)
    """For the case that it is not the trainer's after all: a class can be made in a worker, too."""


_numbers: dict[int, int] | None = None
_kept: list[Any] = []
_inherited: dict[int, tuple[Any, Inherited]] = {}


def remember(objects: list[Any]) -> None:
    """In a clean stem: these objects came from the trainer by value, in this order; they go back as their number."""
    global _numbers
    _kept.extend(objects)  # an id is good only while its object lives
    _numbers = {id(thing): number for number, thing in enumerate(objects)}


class ResultPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what plain pickle cannot: by value, but for what the trainer has already."""

    def persistent_id(self, thing: Any) -> int | Inherited | None:
        """A reference to this object, if it is the trainer's."""
        if not isinstance(thing, type | types.FunctionType):
            return None
        if _numbers is not None:
            return _numbers.get(id(thing))
        return None if _is_importable(thing) else _reference(thing)


def find_inherited(reference: Inherited) -> Any:
    """In the trainer: the class or function that a worker has inherited, or a copy of one that it has made itself."""
    for thing in gc.get_objects():
        if id(thing) == reference.address and _describe(thing) == (reference.kind, reference.module, reference.name):
            return thing
    return pickle.loads(reference.by_value)


def dump(thing: Any) -> bytes:
    """In the worker: something small that is not a batch, such as an error."""
    try:
        return pickle.dumps(thing)
    except Exception:  # whatever a class of the user's raises: the other pickler can do more, or says what is wrong
        stream = io.BytesIO()
        ResultPickler(stream).dump(thing)
        return stream.getvalue()


def load(raw: bytes, find: Find) -> Any:
    """In the trainer: what `dump` made."""
    unpickler = _ResultUnpickler(io.BytesIO(raw))
    unpickler.find = find
    return unpickler.load()


class _ResultUnpickler(pickle.Unpickler):
    find: Find

    def persistent_load(self, reference: Any) -> Any:
        return self.find(reference)


def _reference(thing: Any) -> Inherited:
    known = _inherited.get(id(thing))
    if known is None:
        known = thing, Inherited(id(thing), *_describe(thing), _by_value(thing))
        _inherited[id(thing)] = known  # with the object, for an id is good only while it lives
    return known[1]


def _by_value(thing: Any) -> bytes:
    try:
        return cloudpickle.dumps(thing)  # type: ignore[no-any-return]
    except Exception:  # what its globals hold may be anything; the address will do
        return b""


def _describe(thing: Any) -> tuple[str, str | None, str]:
    name = getattr(thing, "__qualname__", "")
    return type(thing).__name__, getattr(thing, "__module__", None), name if isinstance(name, str) else ""


def _is_importable(thing: Any) -> bool:
    try:
        pickle.dumps(thing)
    except Exception:  # pickle's ways to say no are many
        return False
    return True
