"""The generators that decide what a dataset draws: their state as bytes, and back.

Those of torch, `random` and numpy, and the generator objects that the dataset and the collate function hold. With their
state as it was before a ticket, another worker makes the same batch again, to the last bit.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import random
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data._utils import HAS_NUMPY

from antifreeze.engine.worker.recipe import Recipe

# Objects looked at in search of generators: enough for nested wrappers and transforms, too few to be felt at a start.
MOST_OBJECTS = 5000
# Of a sequence or a dict: a longer one is data rather than a place where generators are kept.
MOST_ITEMS = 64
# A search through this many objects or fewer is so short that it is made again for every snapshot.
FEW_OBJECTS = 300

_HELD: tuple[type, ...] = (torch.Generator, random.Random)
if HAS_NUMPY:
    import numpy as np

    _HELD += (np.random.Generator, np.random.RandomState)

Step = tuple[str, Any]
"""From an object to one that it holds: ("attribute", name), ("item", key) or ("cell", number)."""
Path = tuple[Step, ...]
"""How to get from the recipe to an object."""


class Randomness:
    """All generators that a worker's samples depend on."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._held: dict[Path, Any] = {}
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

    def find(self) -> dict[Path, Any]:
        """The same, each by the way to it; those that were made since are found where that is quick."""
        if self._is_quick:
            self._search()
        return self._held

    def held_state(self) -> bytes:
        """The state of those alone; empty if there are none, or one does not show it."""
        try:
            return pickle.dumps([shown(generator) for generator in self.held], 5) if self._held else b""
        except Exception:  # of a generator of the user's own kind
            return b""

    def state(self) -> bytes:
        """The state of all of them."""
        if self._is_quick:
            self._search()  # a generator may be made at first use
        return pickle.dumps((*global_state(), self._held), 5)

    def restore(self, state: bytes) -> None:
        """Make them all as they were; one that is not there yet is put in its place."""
        *of_all, held = pickle.loads(state)
        restore_global(*of_all)
        self.put_back(held)

    def put_back(self, held: Mapping[Path, Any]) -> None:
        """Make those as these are; one that is not there yet is put in its place."""
        for path, generator in held.items():
            with contextlib.suppress(Exception):  # its holder is made at first use, and is not there yet
                _put(self._recipe, path, generator)
        self._search()

    def _search(self) -> None:
        self._held = {}
        seen: set[int] = set()
        for path, thing in walk(self._recipe, seen):
            if isinstance(thing, _HELD) and thing is not random._inst:
                self._held[path] = thing
        self._is_quick = len(seen) <= FEW_OBJECTS


def shown(generator: Any) -> Any:
    """What a generator's draws depend on, as plain data: the pickle of one of torch's is never the same twice."""
    if isinstance(generator, torch.Generator):
        return _bytes_of(generator.get_state())
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.bit_generator.state if isinstance(generator, np.random.Generator) else generator.get_state()


def global_state() -> tuple[Any, Any, Any]:
    """The state of the generators that all of a process shares: torch's, `random`'s and numpy's."""
    return _bytes_of(torch.get_rng_state()), random.getstate(), np.random.get_state() if HAS_NUMPY else None


def restore_global(of_torch: bytearray, of_random: Any, of_numpy: Any) -> None:
    """Make these as they were."""
    torch.set_rng_state(torch.frombuffer(of_torch, dtype=torch.uint8))
    random.setstate(of_random)
    if of_numpy is not None:
        np.random.set_state(of_numpy)


def _bytes_of(state: torch.Tensor) -> bytearray:
    raw = bytearray(state.numel())
    torch.frombuffer(raw, dtype=torch.uint8).copy_(state)
    return raw


def walk(recipe: Recipe, seen: set[int]) -> Iterator[tuple[Path, Any]]:
    """The objects that a recipe holds, breadth first, each with the shortest way to it."""
    roots = ("dataset", "collate_fn")
    waiting: deque[tuple[Path, Any]] = deque(((("attribute", name),), getattr(recipe, name)) for name in roots)
    while waiting and len(seen) < MOST_OBJECTS:
        path, thing = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield path, thing
        for step, part in _parts(thing):
            if not isinstance(part, _LEAVES):
                waiting.append(((*path, step), part))


_LEAVES = (str, bytes, int, float, complex, type(None), torch.Tensor, type, types.ModuleType)


def _parts(thing: Any) -> Iterator[tuple[Step, Any]]:
    if isinstance(thing, _HELD):
        return
    if isinstance(thing, dict):
        if len(thing) <= MOST_ITEMS:
            yield from ((("item", key), part) for key, part in thing.items())
    elif isinstance(thing, list | tuple):
        if len(thing) <= MOST_ITEMS:
            yield from ((("item", number), part) for number, part in enumerate(thing))
    elif isinstance(thing, functools.partial):
        yield from ((("attribute", name), getattr(thing, name)) for name in ("func", "args", "keywords"))
    elif isinstance(thing, types.MethodType | types.BuiltinMethodType):
        yield ("attribute", "__self__"), thing.__self__
    elif isinstance(thing, types.FunctionType):
        for number, cell in enumerate(thing.__closure__ or ()):
            try:
                yield ("cell", number), cell.cell_contents
            except ValueError:  # an empty cell
                continue
    else:
        yield from ((("attribute", name), part) for name, part in list(getattr(thing, "__dict__", {}).items()))


def _put(recipe: Recipe, path: Path, generator: Any) -> None:
    """Give the generator at the end of this path the state of another, or put that one in its place."""
    holder: Any = recipe
    for step in path[:-1]:
        holder = follow(holder, step)
    kind, key = path[-1]
    try:
        existing = follow(holder, (kind, key))
    except (AttributeError, LookupError, ValueError):
        existing = None
    if type(existing) is type(generator):
        _copy_state(generator, existing)
    else:
        replace(holder, (kind, key), generator)


def replace(holder: Any, step: Step, thing: Any) -> None:
    """Put something where this step leads to."""
    kind, key = step
    if kind == "attribute":
        setattr(holder, key, thing)
    elif kind == "item":
        holder[key] = thing
    else:
        holder.__closure__[key].cell_contents = thing


def follow(thing: Any, step: Step) -> Any:
    """Where this step leads to."""
    kind, key = step
    if kind == "attribute":
        return getattr(thing, key)
    return thing[key] if kind == "item" else thing.__closure__[key].cell_contents


def _copy_state(source: Any, target: Any) -> None:
    if isinstance(source, torch.Generator):
        target.set_state(source.get_state())
    elif isinstance(source, random.Random):
        target.setstate(source.getstate())
    elif isinstance(source, np.random.Generator):
        target.bit_generator.state = source.bit_generator.state
    else:
        target.set_state(source.get_state())
