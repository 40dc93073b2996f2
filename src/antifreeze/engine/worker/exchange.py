"""Several workers, or a worker and the trainer, take turns in one process: each finds its generators as it left them.

Nothing is pickled, as for a snapshot: the objects stay here, and only their states come and go. A generator that the
dataset makes at first use is made by each worker for itself, so that one which another has made is taken away before.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any, NamedTuple

import torch
from torch.utils.data._utils import HAS_NUMPY

from antifreeze.engine.worker.randomness import (
    Path,
    Randomness,
    follow,
    global_state,
    replace,
    restore_global,
    shown,
    walk,
)
from antifreeze.engine.worker.recipe import Recipe

if HAS_NUMPY:
    import numpy as np


class State(NamedTuple):
    """All generators as somebody left them."""

    shared: tuple[Any, Any, Any]
    """Those that all of a process shares."""
    held: dict[Path, tuple[Any, Any]]
    """Those that the dataset and the collate function hold, each with its state; None: it does not show it."""


class Exchange:
    """Takes and gives the states of one recipe's generators."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._randomness = Randomness(recipe)
        # By their number; the objects are kept, so that no number comes to stand for another.
        self._at_first = {id(thing): (thing, _names(thing)) for _, thing in walk(recipe, set())}

    def take(self) -> State:
        """As they are now."""
        held = {path: (each, _shown(each)) for path, each in self._randomness.find().items()}
        return State(global_state(), held)

    def give(self, state: State) -> None:
        """Make them as they were then."""
        restore_global(*state.shared)
        for path in self._randomness.find().keys() - state.held.keys():
            with contextlib.suppress(Exception):  # a holder of the user's own kind, which does not let go of it
                self._take_away(path)
        for path, (generator, shown_state) in state.held.items():
            with contextlib.suppress(Exception):  # the same, or a way to it that is no more
                if shown_state is not None:
                    _put_state(generator, shown_state)
                self._put_back(path, generator)

    def _put_back(self, path: Path, generator: Any) -> None:
        holder, step = self._holder_of(path), path[-1]
        try:
            is_there = follow(holder, step) is generator
        except (AttributeError, LookupError, ValueError):
            is_there = False
        if not is_there:
            replace(holder, step, generator)

    def _take_away(self, path: Path) -> None:
        """Leave the place as it was before there was a generator, as far as that is known: empty, or None."""
        holder, (kind, name) = self._holder_of(path), path[-1]
        _, names = self._at_first.get(id(holder), (None, None))
        if kind != "attribute" or names is None:
            return
        if name not in names:
            delattr(holder, name)
        elif names[name]:
            setattr(holder, name, None)

    def _holder_of(self, path: Path) -> Any:
        holder: Any = self._recipe
        for step in path[:-1]:
            holder = follow(holder, step)
        return holder


def _names(thing: Any) -> dict[str, bool]:
    """The attributes of an object, and which of them are None."""
    return {name: value is None for name, value in getattr(thing, "__dict__", {}).items()}


def _shown(generator: Any) -> Any:
    try:
        return shown(generator)
    except Exception:  # of the user's own kind, or the operating system's, which has no state
        return None


def _put_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(state, dtype=torch.uint8))
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)
