"""Several workers, or a worker and the trainer, take turns in one process: each finds its generators as it left them.

Nothing is pickled, as for a snapshot: the objects stay here, and only their states come and go. A generator that the
dataset makes at first use is made by each worker for itself, so that one which another has made is taken away before.
"""

from __future__ import annotations

import contextlib
from typing import Any

from antifreeze.engine.crossing.ways import Steps, follow, replace
from antifreeze.engine.worker.kinds import Saved, load, save
from antifreeze.engine.worker.randomness import Randomness, holder_of
from antifreeze.engine.worker.recipe import Recipe

HeldState = dict[Steps, tuple[Any, Saved | None]]
"""The generators that the dataset and the collate function hold, each with its state; None: it does not show it."""


class Exchange:
    """Takes and gives the states of the generators that one recipe holds; those of the process are `kinds.py`'s."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._randomness = Randomness(recipe)
        self._randomness.note_vacancies()
        self._away: dict[int, tuple[Steps, Any]] = {}
        """By the number of a generator: what was taken away with it, which another worker has made to hold it."""

    def take(self) -> HeldState:
        """As they are now."""
        return {steps: (each, _saved(each)) for steps, each in self._randomness.find().items()}

    def give(self, state: HeldState) -> None:
        """Make them as they were then."""
        found = dict(self._randomness.find())
        for way, thing in self._randomness.take_away_but(state.keys()).items():
            self._away |= {id(each): (way, thing) for steps, each in found.items() if steps[: len(way)] == way}
        for steps, (generator, saved) in state.items():
            with contextlib.suppress(Exception):  # the same, or a way to it that is no more
                if saved is not None:
                    load(generator, saved)
                self._put_back(steps, generator)

    def _put_back(self, steps: Steps, generator: Any) -> None:
        steps, generator = self._away.pop(id(generator), (steps, generator))
        holder, step = holder_of(self._recipe, steps), steps[-1]
        try:
            is_there = follow(holder, step) is generator
        except (AttributeError, LookupError, ValueError):
            is_there = False
        if not is_there:
            replace(holder, step, generator)


def _saved(generator: Any) -> Saved | None:
    try:
        return save(generator)
    except Exception:  # of the user's own kind
        return None
