"""The kinds of random generators, in one table: how to tell them, and how to get and set their state.

torch's, `random`'s, and numpy's new and old ones and what both draw their bits and seeds from; and the three that all of
a process shares. (Seeds are `birth.py`'s.)
"""

from __future__ import annotations

import _random
import contextlib
import dis
import operator
import pickle
import random
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from antifreeze.engine.crossing.reading import ancestors, is_a
from antifreeze.engine.crossing.walk import names_in
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:
    import numpy as np

Shared = tuple[torch.Tensor, Any, Any]
"""The state of the generators that all of a process shares: torch's, `random`'s and numpy's; as they take it."""


class Saved(NamedTuple):
    """The state of one generator, as plain data."""

    kind: str
    state: Any
    made_by: bytes = b""
    """The class of the user's that it is an object of, pickled."""


class Kind(NamedTuple):
    """How to handle generators of one kind."""

    name: str
    type: Any
    get: Callable[[Any], Any]
    set: Callable[[Any, Any], None]
    make: Callable[[Any], Any]
    """A new one for a state, which it need not have yet."""


def _get_torch(generator: torch.Generator) -> bytes:
    return plain_bytes(generator.get_state())


def _set_torch(generator: torch.Generator, state: bytes) -> None:
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _seeds_with_children(generator: Any) -> Any:
    """The state of what a bit generator got its seed from, if that has spawned others since: it counts them."""
    seeds: Any = getattr(generator, "seed_seq", None)  # numpy before 1.25 does not show it
    return seeds.state if seeds is not None and getattr(seeds, "n_children_spawned", None) else None


def _get_bits(generator: Any) -> Any:
    state, seeds = generator.state, _seeds_with_children(generator)
    return state if seeds is None else {**state, "seed_seq": seeds}


def _set_bits(generator: Any, state: Any) -> None:
    generator.state = state
    seeds, then = _seeds_with_children(generator), state.get("seed_seq")
    if then is None and seeds is not None:
        then = {**seeds, "n_children_spawned": 0}
    if then is not None:
        with contextlib.suppress(TypeError):  # numpy before 2.0 lets nobody set it
            generator.__setstate__((generator.state, _make_seeds(then)))


def seed_bits(generator: Any, seed: int) -> None:
    """Have a bit generator of numpy's, and what it will spawn, follow from this seed."""
    fresh = type(generator)(seed)
    seeds = getattr(fresh, "seed_seq", None)
    _set_bits(generator, fresh.state if seeds is None else {**fresh.state, "seed_seq": seeds.state})


def _set_seeds(seeds: Any, state: Any) -> None:
    """It can only go on counting; of others, ValueError, and one that is made anew takes its place."""
    more = state["n_children_spawned"] - seeds.n_children_spawned
    if more < 0 or {**seeds.state, "n_children_spawned": 0} != {**state, "n_children_spawned": 0}:
        raise ValueError("a seed sequence cannot be set back")
    seeds.spawn(more)


def _make_seeds(state: Any) -> Any:
    return np.random.SeedSequence(**state)


def bit_generator(state: Any) -> Any:
    """A bit generator of numpy's of the kind that a state is of."""
    kind = getattr(np.random, state["bit_generator"], None)
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise ValueError(f"numpy has no generator {state['bit_generator']!r}")
    return kind()


KINDS: tuple[Kind, ...] = (
    Kind("torch", torch.Generator, _get_torch, _set_torch, lambda _: torch.Generator()),
    Kind(
        "random",
        random.Random,
        lambda it: it.getstate(),
        lambda it, state: it.setstate(state),
        lambda _: random.Random(),
    ),
)
if HAS_NUMPY:
    KINDS += (
        Kind(
            "numpy",
            np.random.Generator,
            lambda it: _get_bits(it.bit_generator),
            lambda it, state: _set_bits(it.bit_generator, state),
            lambda state: np.random.Generator(bit_generator(state)),
        ),
        Kind(
            "numpy, old",
            np.random.RandomState,
            lambda it: it.get_state(legacy=False),
            lambda it, state: it.set_state(state),
            lambda state: np.random.RandomState(bit_generator(state)),
        ),
        Kind("numpy, bits", np.random.BitGenerator, _get_bits, _set_bits, bit_generator),
        Kind("numpy, seeds", np.random.SeedSequence, lambda it: it.state, _set_seeds, _make_seeds),
    )
_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_TYPE = {id(kind.type): kind for kind in KINDS}


def kind_of(thing: Any) -> Kind | None:
    """The kind of a generator; None if it is none. It is not asked: a proxy may say anything."""
    return next((_BY_TYPE[id(each)] for each in ancestors(type(thing)) if id(each) in _BY_TYPE), None)


def is_held(thing: Any) -> bool:
    """Whether it is a generator of somebody's own, which has a state that a process without a device can have."""
    kind = kind_of(thing)
    if kind is None or any(each is random.SystemRandom for each in ancestors(type(thing))):
        return False
    if kind.name == "torch" and torch.Generator.device.__get__(thing).type != "cpu":
        return False
    return not any(thing is each for each in _shared())


def _shared() -> tuple[Any, ...]:
    of_numpy = (np.random.mtrand._rand, np.random.mtrand._rand._bit_generator) if HAS_NUMPY else ()
    return random._inst, torch.default_generator, *of_numpy


# Functions that draw from the generator of OpenCV, which does not show its state.
_OF_OPENCV = frozenset({"randu", "randn", "randShuffle", "setRNGSeed", "kmeans", "grabCut"})


def draws_from_opencv(thing: Any) -> bool:
    """Whether it is a function whose code does."""
    cv2 = sys.modules.get("cv2")
    if cv2 is None or not is_a(thing, types.FunctionType) or _OF_OPENCV.isdisjoint(names_in(thing.__code__)):
        return False
    return _names_drawing(thing.__code__, thing.__globals__, cv2)


def _names_drawing(code: types.CodeType, namespace: dict[str, Any], cv2: types.ModuleType) -> bool:
    before = ""
    for each in dis.get_instructions(code):
        name = each.argval if isinstance(each.argval, str) else ""
        if name in _OF_OPENCV and each.opname.startswith("LOAD_"):
            is_its_own = namespace.get(name) is getattr(cv2, name, None) and each.opname == "LOAD_GLOBAL"
            if is_its_own or before in ("cv2", "cv") or namespace.get(before) is cv2:
                return True
        before = name
    return any(_names_drawing(each, namespace, cv2) for each in code.co_consts if isinstance(each, types.CodeType))


def save(generator: Any) -> Saved:
    """The state of a generator."""
    kind = kind_of(generator)
    assert kind is not None
    is_users = kind.name == "random" and type(generator) is not random.Random
    return Saved(kind.name, kind.get(generator), _reference(type(generator)) if is_users else b"")


def load(generator: Any, saved: Saved) -> None:
    """Give a generator this state; TypeError or ValueError if it is of another kind."""
    kind = kind_of(generator)
    if kind is None or kind.name != saved.kind:
        raise TypeError(f"the state of a generator ({saved.kind}) is no state for this one")
    kind.set(generator, saved.state)


def make(saved: Saved) -> Any:
    """A generator that has this state."""
    kind = _BY_NAME[saved.kind]
    generator = random.Random.__new__(pickle.loads(saved.made_by)) if saved.made_by else kind.make(saved.state)
    kind.set(generator, saved.state)
    return generator


def _reference(kind: type) -> bytes:
    """How another process finds this class; empty if it cannot."""
    try:
        return pickle.dumps(kind, 5)
    except Exception:  # it is made inside a function
        return b""


def exchange_global(state: Shared) -> Shared:
    """Give the generators that all of a process shares this state; returns the state that they had.

    No draw of another thread falls between the look at a generator and the change of it: it would be undone, and the same
    numbers would come twice. (Each pair is one call of C code, in which Python does not turn to other threads.)
    """
    of_torch, of_random, of_numpy = state
    version, words, gauss = of_random
    own: Any = random._inst
    torchs, _ = _at_once(torch.default_generator.get_state, partial(torch.default_generator.set_state, of_torch))
    numbers, left_over, *_ = _at_once(
        partial(_random.Random.getstate, own),
        partial(getattr, own, "gauss_next"),
        partial(_random.Random.setstate, own, words),
        partial(setattr, own, "gauss_next", gauss),
    )
    numpys = None
    if of_numpy is not None:
        numpys, _ = _at_once(np.random.get_state, partial(np.random.set_state, of_numpy))
    return torchs, (version, numbers, left_over), numpys


def _at_once(*calls: Callable[[], Any]) -> list[Any]:
    return list(map(operator.methodcaller("__call__"), calls))


def current_global() -> Shared:
    """The state that they have."""
    return torch.get_rng_state(), random.getstate(), np.random.get_state() if HAS_NUMPY else None


def global_state() -> tuple[bytes, Any, Any]:
    """The same as plain data."""
    return plain_bytes(torch.get_rng_state()), random.getstate(), np.random.get_state() if HAS_NUMPY else None


def restore_global(of_torch: bytes, of_random: Any, of_numpy: Any) -> None:
    """Make these as they were."""
    torch.set_rng_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))
    random.setstate(of_random)
    if of_numpy is not None:
        np.random.set_state(of_numpy)


def plain_bytes(state: torch.Tensor) -> bytes:
    """A state of torch's as plain data."""
    if HAS_NUMPY:
        return state.numpy().tobytes()
    raw = bytearray(state.numel())
    torch.frombuffer(raw, dtype=torch.uint8).copy_(state)
    return bytes(raw)
