"""Generators of random numbers: those of the whole process, and those that a dataset holds; compared by their state."""

from __future__ import annotations

import hashlib
import pickle
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from antifreeze.engine.crossing.walk import walk
from antifreeze.engine.worker.kinds import is_held, save


def global_states() -> dict[str, str]:
    """Of the generators that belong to the process, by their module."""
    states: dict[str, Any] = {"random": random.getstate(), "torch": bytes(torch.get_rng_state().tolist())}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        states["numpy.random"] = (kind, keys.tobytes(), *rest)
    return {name: _hash(state) for name, state in states.items()}


def held_generators(dataset: Any) -> dict[str, Callable[[], str]]:
    """Path → what gives the state of the generator there."""
    found: dict[str, Callable[[], str]] = {}
    for path, thing in walk({"dataset": dataset}):
        state = _state_of(thing)
        if state is not None:
            found[path] = state
    return found


def _state_of(thing: Any) -> Callable[[], str] | None:
    return (lambda: _hash(pickle.dumps(save(thing), 5))) if is_held(thing) else None


def _hash(state: Any) -> str:
    return hashlib.blake2b(repr(state).encode(), digest_size=8).hexdigest()
