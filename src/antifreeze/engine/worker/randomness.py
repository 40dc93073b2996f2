"""The generators that decide what a dataset draws: their state as bytes, and back.

Those of torch, `random` and numpy, and the generator objects that the dataset and the collate function hold, or that their
code names. With their state as it was before a ticket, another worker makes the same batch again, to the last bit.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Mapping
from typing import Any

import torch

from antifreeze.engine.crossing.walk import ways
from antifreeze.engine.crossing.ways import Steps, follow, replace
from antifreeze.engine.worker.kinds import Saved, global_state, is_held, load, make, restore_global, save
from antifreeze.engine.worker.notices import Holder
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.observe.say import say_once

# Objects looked at in search of generators: enough for nested wrappers and transforms, too few to be felt at a start.
MOST_OBJECTS = 5000
# Of a container: a longer one is data rather than a place where generators are kept.
MOST_ITEMS = 256
# A search through this many objects or fewer is so short that it is made again for every snapshot.
FEW_OBJECTS = 300
# Other searches take no more than this part of a worker's time, but for the first ones: what is made at first use is made
# soon.
SHARE = 0.005
FIRST_SEARCHES = 8


class Randomness:
    """All generators that a worker's samples depend on."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._held: dict[Steps, Any] = {}
        self._search_due = 0.0
        self._searches = 0
        self._is_quick = True
        self._search()

    @property
    def held(self) -> list[Any]:
        """The generators that the dataset and the collate function hold."""
        return list(self._held.values())

    def look_again(self) -> bool:
        """Search once more; whether the dataset has got a generator that was not there before."""
        before = {id(generator) for generator in self._held.values()}
        kept = self.held  # alive, so that no other object has their identity
        self._search()
        del kept
        return not {id(generator) for generator in self._held.values()} <= before

    def find(self, *, is_often: bool = False) -> dict[Steps, Any]:
        """The same, each by the way to it; those that were made since are found where that is quick, or in a while.

        `is_often`: it is called for every batch, and is to be quicker than that.
        """
        is_due = (self._is_quick and not is_often) or time.monotonic() >= self._search_due
        if is_due or not self._are_there():
            self._search()
        return self._held

    def _are_there(self) -> bool:
        """Whether those that were found are still where they were."""
        try:
            return all(follow(holder_of(self._recipe, each), each[-1]) is it for each, it in self._held.items())
        except Exception:  # a way that is no more
            return False

    def held_states(self) -> list[Watched]:
        """Those that the dataset and the collate function hold, as they are now."""
        return [Watched(generator, _holder(steps)) for steps, generator in self._held.items()]

    def saved(self, *, is_often: bool = False) -> dict[Steps, Saved]:
        """The state of those that the dataset holds, each by the way to it."""
        return {steps: save(generator) for steps, generator in self.find(is_often=is_often).items()}

    def state(self) -> bytes:
        """The state of all of them."""
        return pickle.dumps((*global_state(), self.saved()), 5)

    def restore(self, state: bytes) -> None:
        """Make them all as they were; one that is not there yet is put in its place."""
        *of_all, held = pickle.loads(state)
        restore_global(*of_all)
        self.put_back(held)

    def put_back(self, held: Mapping[Steps, Saved]) -> None:
        """Make those as these are; one that is not there yet is put in its place."""
        for steps, saved in held.items():
            with contextlib.suppress(Exception):  # its holder is made at first use, and is not there yet
                _put(self._recipe, steps, saved)
        self._search()

    def _search(self) -> None:
        began_s = time.thread_time()  # not by the clock: on a busy machine, all takes longer
        count = 0
        try:
            self._held = {}
            for count, (way, thing) in enumerate(search(self._recipe)):  # noqa: B007
                if is_held(thing):
                    self._held[way.steps] = thing
        except Exception as error:  # none is known that could; and a dataset must not fail because it was looked at
            self._held = {}
            say_once(
                f"the dataset could not be searched for random generators ({error!r}): if it holds any, and a worker is "
                "lost, its replacement may draw other numbers from them. Please report this."
            )
        self._is_quick = count < FEW_OBJECTS
        self._searches += 1
        if self._searches > FIRST_SEARCHES:
            self._search_due = time.monotonic() + (time.thread_time() - began_s) / SHARE


class Watched:
    """A generator, and what it was like when it was first looked at."""

    def __init__(self, generator: Any, holder: Holder) -> None:
        self._generator = generator
        self.holder: Holder = holder
        self._then = self.now()

    def now(self) -> bytes:
        """Its state; empty if it does not show it."""
        try:
            return pickle.dumps(save(self._generator), 5)
        except Exception:  # of a generator of the user's own kind
            return b""

    def has_changed(self) -> bool:
        """Whether it has been drawn from, or seeded, since then."""
        return self.now() != self._then


def _holder(steps: Steps) -> Holder:
    if any(kind in ("global", "module") for kind, _ in steps):
        return "module"
    return "collate_fn" if steps[0][1] == "collate_fn" else "dataset"


def search(recipe: Recipe) -> Any:
    """The ways to all objects that a recipe holds, as far as generators may be among them."""
    roots = {"dataset": recipe.dataset, "collate_fn": recipe.collate_fn}
    return ways(roots, closed=(torch.Tensor,), most_objects=MOST_OBJECTS, longest=MOST_ITEMS)


def holder_of(recipe: Recipe, steps: Steps) -> Any:
    """The object that the last of these steps is made from."""
    holder: Any = recipe
    for step in steps[:-1]:
        holder = follow(holder, step)
    return holder


def _put(recipe: Recipe, steps: Steps, saved: Saved) -> None:
    """Give the generator at the end of this way a state, or put one that has it in its place."""
    holder = holder_of(recipe, steps)
    try:
        load(follow(holder, steps[-1]), saved)
    except Exception:  # there is none, or one of another kind
        replace(holder, steps[-1], make(saved))
