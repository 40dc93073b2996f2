"""The generators that decide what a dataset draws: their state as bytes, and back.

Those of torch, `random` and numpy, and the generator objects that the dataset and the collate function hold, or that their
code names. With their state as it was before a ticket, another worker makes the same batch again, to the last bit.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import torch

from antifreeze.engine.crossing.walk import Places, ways
from antifreeze.engine.crossing.ways import Steps, follow, replace
from antifreeze.engine.worker.kinds import (
    Saved,
    draws_from_opencv,
    global_state,
    is_held,
    kind_of,
    load,
    make,
    restore_global,
    save,
)
from antifreeze.engine.worker.notices import Holder
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.vacancies import Vacancies
from antifreeze.observe.say import say_once
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:
    import numpy as np

T = TypeVar("T")

# Objects looked at in search of generators: enough for nested wrappers and transforms, too few to be felt at a start.
MOST_OBJECTS = 5000
# Of a container: a longer one is data rather than a place where generators are kept.
MOST_ITEMS = 256
# A look for new ones that takes longer than this is not made again, where it need not be, for so many times as long.
QUICK_S, PAUSE = 0.001, 50
# What changes all the time, and holds no generator.
_DATA: tuple[type, ...] = (torch.Tensor,)
if HAS_NUMPY:
    _DATA += (np.ndarray, *set(np.sctypeDict.values()))


class Randomness:
    """All generators that a worker's samples depend on."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._held: dict[Steps, Any] = {}
        self.awaited: dict[Steps, Saved] = {}
        """States of generators that user code has not made yet: it makes them at first use."""
        self._restless: set[Steps] = set()
        """Places where a batch puts another generator each time that it is made."""
        self._vacancies: Vacancies | None = None
        self._look_due = 0.0
        self.is_sure = True
        """Whether it was looked, when they were last asked for, if there are others."""
        self.is_exact = True
        """Whether all that was made since could be taken away, whenever they were brought back since this was set."""
        self.is_whole = True
        """Whether they are all; else there are hundreds of them, or OpenCV's, and the state of the others is not enough."""
        self._search()

    def find(self, *, if_quick: bool = False) -> dict[Steps, Any]:
        """The generators that the dataset and the collate function hold now, each by the way to it.

        `if_quick`: where it takes long, it is not looked each time if there are others.
        """
        self.is_sure = not (if_quick and time.monotonic() < self._look_due and self._are_there())
        if not self.is_sure:
            return self._held
        began_s = time.thread_time()
        if not self._places.are_as_they_were():
            self._search()
        took_s = time.thread_time() - began_s
        self._look_due = time.monotonic() + PAUSE * took_s if took_s > QUICK_S else 0.0
        return self._held

    def _are_there(self) -> bool:
        """Whether those that were found are still where they were."""
        try:
            return all(follow(holder_of(self._recipe, each), each[-1]) is it for each, it in self._held.items())
        except Exception:  # a way that is no more
            return False

    def held_states(self) -> list[Watched]:
        """Those that the dataset and the collate function hold, as they are now."""
        return [Watched(generator, _holder(steps)) for steps, generator in self.find().items()]

    def saved(self, *, if_quick: bool = False) -> dict[Steps, Saved]:
        """The state of those that the dataset holds, or will hold, each by the way to it."""
        saved = {steps: save(generator) for steps, generator in self.find(if_quick=if_quick).items()}
        return {**self.awaited, **saved} if self.awaited else saved

    def state(self) -> bytes:
        """The state of all of them."""
        return pickle.dumps((*global_state(), self.saved()), 5)

    def restore(self, state: bytes, *, waits: bool = False) -> None:
        """Make them all as they were; one that is not there yet is put in its place, or waited for.

        One that was made since is taken away, to be made again; `is_exact` is False if that cannot be done.
        """
        *of_all, held = pickle.loads(state)
        self.take_away_but(held.keys())
        restore_global(*of_all)
        self.put_back(held, waits=waits)

    def note_vacancies(self) -> None:
        """From now on, generators that are made can be taken away."""
        self._vacancies = Vacancies()
        self._search()

    def take_away_but(self, kept: Collection[Steps]) -> dict[Steps, Any]:
        """Leave no generators but these; returns what was taken away, by the way to it.

        That is the generator, or what was made to hold it, as long as none of these goes with it.
        """
        taken: dict[Steps, Any] = {}
        since = [steps for steps in self.find() if steps not in kept]
        for steps in reversed(since):  # of a list, the last one first
            if not any(steps[: len(each)] == each for each in taken):
                ways = (steps[:length] for length in range(len(steps), 1, -1) if not _leads_on(kept, steps[:length]))
                self.is_exact &= any(self._take_away(way, taken) for way in ways)
        return taken

    def _take_away(self, steps: Steps, taken: dict[Steps, Any]) -> bool:
        try:
            holder = holder_of(self._recipe, steps)
            thing = follow(holder, steps[-1])
            if self._vacancies is None or not self._vacancies.vacate(holder, steps[-1]):
                return False
        except Exception:  # of a holder of the user's own kind, which does not let go of it
            return False
        taken[steps] = thing
        return True

    def put_back(self, held: Mapping[Steps, Saved], *, waits: bool = False) -> None:
        """Make those as these are; one that is not there yet is put in its place.

        `waits`: it gets its state when user code has made it (`fetch`). What makes a generator at first use makes other
        things as well (a file, a decoder), and would not do so if it found the generator there.
        """
        self.awaited = {}
        for steps, saved in held.items():
            if waits and not self._is_there(steps):
                self.awaited[steps] = saved
                continue
            with contextlib.suppress(Exception):  # its holder is made at first use, and is not there yet
                _put(self._recipe, steps, saved)
        self._search()

    def put_where_there_is_room(self) -> None:
        """Put those that are waited for in their places, but for those whose place is not there yet, either."""
        awaited = self.awaited
        self.put_back(awaited)
        self.awaited = {steps: saved for steps, saved in awaited.items() if not self._is_there(steps)}

    def _is_there(self, steps: Steps) -> bool:
        """Whether this way leads to a generator."""
        try:
            return kind_of(follow(holder_of(self._recipe, steps), steps[-1])) is not None
        except Exception:  # a way that is not there, or not there yet
            return False

    def have_come(self) -> bool:
        """Whether user code has made generators that are waited for."""
        return any(map(self._is_there, self.awaited))

    def fetch(self, fetch: Callable[[], T], begin_again: Callable[[], object]) -> T:
        """What this function returns when generators that are waited for have their states.

        Those that it makes on the way have drawn from their start; then all is set back, and it is called once more.
        """
        while self.awaited:
            try:
                before = self.state()
            except Exception:  # of a generator of the user's own kind: there is no way back
                break
            try:
                result = fetch()
            except Exception:  # of user code, perhaps of draws that it should not have made
                if not self.have_come():
                    raise
            else:
                if not self.have_come():
                    return result
                del result
            self.restore(before, waits=True)
            begin_again()
        return fetch()

    def fetch_seeded(self, fetch: Callable[[], T], begin_again: Callable[[], object]) -> T:
        """What this function returns when all generators have drawn from their seeds, those that it makes included.

        `begin_again` seeds them, as whoever calls this has just done. A generator that was made on the way has not drawn
        from its seed, so that all is made once more; but for one that is made anew each time, whose draws follow from what
        the dataset does.
        """
        before = self._held
        result = fetch()
        made = self._made_since(before)
        if not made:
            return result
        del result
        first = self._held
        begin_again()
        result = fetch()
        self._restless |= made & self._made_since(first)
        return result

    def _made_since(self, before: Mapping[Steps, Any]) -> set[Steps]:
        """Where there is another generator now than there was."""
        now = self.find()
        if now is before:
            return set()
        return {steps for steps, each in now.items() if before.get(steps) is not each} - self._restless

    def _search(self) -> None:
        self._held, self._places = {}, Places(*_DATA)
        try:
            found = list(search(self._recipe, self._places))
            held = [(way, thing) for way, thing in found if is_held(thing)]
            self._held = {way.steps: thing for way, thing in held if not way.of_many}
            self.is_whole = len(self._held) == len(held) and not any(draws_from_opencv(thing) for _, thing in found)
            if self._vacancies is not None:
                self._vacancies.note(thing for _, thing in found)
        except Exception as error:  # none is known that could; and a dataset must not fail because it was looked at
            self._held = {}
            say_once(
                f"the dataset could not be searched for random generators ({error!r}): if it holds any, and a worker is "
                "lost, its replacement may draw other numbers from them. Please report this."
            )


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


def _leads_on(ways: Collection[Steps], steps: Steps) -> bool:
    """Whether one of these ways begins with these steps."""
    return any(each[: len(steps)] == steps for each in ways)


def _holder(steps: Steps) -> Holder:
    if any(kind in ("global", "module") for kind, _ in steps):
        return "module"
    return "collate_fn" if steps[0][1] == "collate_fn" else "dataset"


def search(recipe: Recipe, places: Places | None = None) -> Any:
    """The ways to all objects that a recipe holds, as far as generators may be among them."""
    roots = {"dataset": recipe.dataset, "collate_fn": recipe.collate_fn}
    return ways(roots, closed=(torch.Tensor,), most_objects=MOST_OBJECTS, longest=MOST_ITEMS, places=places)


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
