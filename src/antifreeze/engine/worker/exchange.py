"""Several workers, or a worker and the trainer, take turns in one process: each finds its generators as it left them.

Nothing is pickled, as for a snapshot: the objects stay here, and only their states come and go. A generator that the
dataset makes at first use is made by each worker for itself, so that one which another has made is taken away before.
"""

from __future__ import annotations

import contextlib
from typing import Any

from antifreeze.engine.crossing.reading import attributes_of
from antifreeze.engine.crossing.ways import Steps, follow, remove, replace
from antifreeze.engine.worker.kinds import Saved, load, save
from antifreeze.engine.worker.randomness import Randomness, holder_of, search
from antifreeze.engine.worker.recipe import Recipe

HeldState = dict[Steps, tuple[Any, Saved | None]]
"""The generators that the dataset and the collate function hold, each with its state; None: it does not show it."""


class Exchange:
    """Takes and gives the states of the generators that one recipe holds; those of the process are `kinds.py`'s."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._randomness = Randomness(recipe)
        # By their number; the objects are kept, so that no number comes to stand for another.
        self._at_first: dict[int, tuple[Any, dict[str, bool]]] = {}
        with contextlib.suppress(Exception):  # then what is made at first use stays, as it would without workers
            self._at_first = {id(thing): (thing, _names(thing)) for _, thing in search(recipe)}

    def take(self) -> HeldState:
        """As they are now."""
        return {steps: (each, _saved(each)) for steps, each in self._randomness.find().items()}

    def give(self, state: HeldState) -> None:
        """Make them as they were then."""
        for steps in self._randomness.find().keys() - state.keys():
            with contextlib.suppress(Exception):  # a holder of the user's own kind, which does not let go of it
                self._take_away(steps)
        for steps, (generator, saved) in state.items():
            with contextlib.suppress(Exception):  # the same, or a way to it that is no more
                if saved is not None:
                    load(generator, saved)
                self._put_back(steps, generator)

    def _put_back(self, steps: Steps, generator: Any) -> None:
        holder, step = holder_of(self._recipe, steps), steps[-1]
        try:
            is_there = follow(holder, step) is generator
        except (AttributeError, LookupError, ValueError):
            is_there = False
        if not is_there:
            replace(holder, step, generator)

    def _take_away(self, steps: Steps) -> None:
        """Leave the place as it was before there was a generator, as far as that is known: empty, or None."""
        holder, (kind, name) = holder_of(self._recipe, steps), steps[-1]
        _, names = self._at_first.get(id(holder), (None, None))
        if kind != "attribute" or names is None:
            return
        if name not in names:
            remove(holder, name)
        elif names[name]:
            replace(holder, (kind, name), None)


def _names(thing: Any) -> dict[str, bool]:
    """The attributes of an object, and which of them are None."""
    return {name: value is None for name, value in attributes_of(thing).items()}


def _saved(generator: Any) -> Saved | None:
    try:
        return save(generator)
    except Exception:  # of the user's own kind
        return None
