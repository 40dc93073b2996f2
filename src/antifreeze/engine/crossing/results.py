"""The way back: classes and functions of the trainer return as references, never as copies.

cloudpickle alone would send a class by value, and the trainer would set the state of its own class to the worker's.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

_numbers: dict[int, int] = {}
_kept: list[Any] = []


def remember(objects: list[Any]) -> None:
    """In the worker: these objects came from the trainer by value, in this order; they go back as their number."""
    _kept.extend(objects)  # an id is good only while its object lives
    _numbers.update({id(thing): number for number, thing in enumerate(objects)})


class ResultPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what plain pickle cannot: by value, but for what the trainer has already."""

    def persistent_id(self, thing: Any) -> int | None:
        """The trainer's number for this object, if it is one of the trainer's."""
        return _numbers.get(id(thing))


def dump(thing: Any) -> bytes:
    """In the worker: something small that is not a batch, such as an error."""
    try:
        return pickle.dumps(thing)
    except Exception:  # whatever a class of the user's raises: the other pickler can do more, or says what is wrong
        stream = io.BytesIO()
        ResultPickler(stream).dump(thing)
        return stream.getvalue()


class _ResultUnpickler(pickle.Unpickler):
    find: Callable[[int], Any]

    def persistent_load(self, number: int) -> Any:
        return self.find(number)


def load(raw: bytes, find: Callable[[int], Any]) -> Any:
    """In the trainer: what `dump` made; `find` gives the trainer's object of a number."""
    unpickler = _ResultUnpickler(io.BytesIO(raw))
    unpickler.find = find
    return unpickler.load()
