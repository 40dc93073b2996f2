"""Places where a dataset had no generator yet, and how to leave them like that once more.

What is made at first use must be made again when a worker goes back to before that: it would go on drawing otherwise.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from antifreeze.engine.crossing.reading import attributes_of, is_a, some_entries
from antifreeze.engine.crossing.walk import names_in
from antifreeze.engine.crossing.ways import Step, global_step, remove, replace


class Vacancies:
    """What some objects had in their places at first: something, None, or nothing."""

    def __init__(self, things: Iterable[Any]) -> None:
        self._at_first: dict[int, tuple[Callable[[], Any], dict[Step, bool]]] = {}
        """By number: the object, which is not kept if it need not be, and its places; whether there was None."""
        for thing in things:
            self._at_first[id(thing)] = _reference(thing), _places_of(thing)

    def vacate(self, holder: Any, step: Step) -> bool:
        """Leave a place as it was before there was a generator; False if there was something, or nobody knows."""
        known, places = self._at_first.get(id(holder), (lambda: None, {}))
        if known() is not holder or step[0] not in _KINDS or places.get(step) is False:
            return False
        if step in places:
            replace(holder, step, None)
        else:
            remove(holder, step)
        return True


_KINDS = ("attribute", "item", "global")


def _reference(thing: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(thing)
    except TypeError:  # a dict, say
        return lambda: thing


def _places_of(thing: Any) -> dict[Step, bool]:
    places = {("attribute", name): value is None for name, value in attributes_of(thing).items()}
    if is_a(thing, dict):
        places |= {("item", key): value is None for key, value in some_entries(thing)}
    elif is_a(thing, types.FunctionType):
        of_module = thing.__globals__
        names = [name for name in names_in(thing.__code__) if name in of_module]
        places |= {global_step(thing, name): of_module[name] is None for name in names}
    return places
