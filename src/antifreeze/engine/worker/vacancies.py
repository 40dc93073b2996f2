"""Places where a dataset had no generator yet, and how to leave them like that once more.

What is made at first use must be made again when a worker goes back to before that: it would go on drawing otherwise.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from antifreeze.engine.crossing.reading import ancestors, attributes_of, is_a, namespace_of, some_entries, spread
from antifreeze.engine.crossing.walk import names_in
from antifreeze.engine.crossing.ways import Step, global_step, remove, replace


class Vacancies:
    """What objects had in their places when they were first seen: something, None, or nothing."""

    def __init__(self) -> None:
        self._at_first: dict[int, tuple[Callable[[], Any], dict[Step, bool]]] = {}
        """By number: the object, which is not kept if it need not be, and its places; whether there was None."""

    def note(self, things: Iterable[Any]) -> None:
        """These are all that there are now; those that are new are looked at."""
        before, self._at_first = self._at_first, {}
        for thing in things:
            for each in (thing, *filter(_can_be_changed, ancestors(type(thing)))):
                if id(each) not in self._at_first:
                    known = before.get(id(each))
                    is_known = known is not None and known[0]() is each
                    self._at_first[id(each)] = known if is_known and known else (_reference(each), _places_of(each))

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


_KINDS = ("attribute", "item", "global", "cell")


def _can_be_changed(kind: type) -> bool:
    return bool(kind.__flags__ & 1 << 9)  # made by a class statement


def _reference(thing: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(thing)
    except TypeError:  # a dict, say
        return lambda: thing


def _places_of(thing: Any) -> dict[Step, bool]:
    if is_a(thing, type):
        return {("attribute", name): value is None for name, value in list(namespace_of(thing).items())}
    places: dict[Step, bool] = {("attribute", name): value is None for name, value in attributes_of(thing).items()}
    if is_a(thing, dict):
        places |= {("item", key): value is None for key, value in some_entries(thing)}
    elif is_a(thing, list):
        places |= {("item", place): value is None for place, value in spread(thing, list)}
    elif is_a(thing, types.FunctionType):
        of_module = thing.__globals__
        names = [name for name in names_in(thing.__code__) if name in of_module]
        places |= {global_step(thing, name): of_module[name] is None for name in names}
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=False)
        places |= {("cell", name): cell.cell_contents is None for name, cell in cells if cell != types.CellType()}
    return places
