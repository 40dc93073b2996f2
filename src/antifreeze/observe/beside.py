"""What is kept beside an object, and not in it: found by identity, and gone when the object is."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """A value for each of some objects, whose `__eq__` and `__hash__` are never asked: a loader may have none, or its own.

    Of an object without weak references nothing is kept: it would stay until the end of the program.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[Any], T]] = {}

    def get(self, thing: Any) -> T | None:
        """The value of this object."""
        reference, value = self._kept.get(id(thing), (None, None))
        return value if reference is not None and reference() is thing else None

    def objects(self) -> list[Any]:
        """All that have a value."""
        return [thing for reference, _ in list(self._kept.values()) if (thing := reference()) is not None]

    def keep(self, thing: Any, value: T) -> T:
        """Let this be its value from now on."""
        number, kept = id(thing), self._kept
        with contextlib.suppress(TypeError):
            # C code alone runs when the object dies, wherever that is: in a Python function, what a signal handler raises
            # would be dropped.
            kept[number] = (weakref.ref(thing, functools.partial(kept.pop, number)), value)
        return value
