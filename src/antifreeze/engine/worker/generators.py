"""The state of random generators as plain data that any file format can hold, and back; never as pickles.

A checkpoint may come from somewhere else: nothing in it is executed.
"""

from __future__ import annotations

import array
import pickle
import random
from collections.abc import Mapping
from typing import Any

import torch

from antifreeze.engine.crossing.ways import Steps
from antifreeze.engine.plan.progress import pack, unpack
from antifreeze.engine.worker.kinds import Saved, bit_generator, load, make, save
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:
    import numpy as np

Plain = dict[str, Any]


def plain_of(generator: Any) -> Plain:
    """The state of one generator."""
    return _plain(save(generator))


def set_plain(generator: Any, plain: Plain) -> None:
    """Give a generator this state; of another kind, it raises ValueError or TypeError."""
    load(generator, _saved(plain))


def _plain(saved: Saved) -> Plain:
    match saved.kind:
        case "torch":
            return {"kind": "torch", "state": pack(saved.state)}
        case "random":
            return _plain_random(saved.state)
        case "numpy" | "numpy, old":
            return {"kind": "numpy", "is_new": saved.kind == "numpy", "state": _plain_numpy(saved.state)}
        case kind:
            return {"kind": kind, "state": _plain_numpy(saved.state)}


def _saved(plain: Any) -> Saved:
    kind = plain["kind"] if isinstance(plain, dict) else None
    if kind == "torch":
        return Saved("torch", unpack(plain["state"]))
    if kind == "random":
        return Saved("random", _random_state(plain))
    if kind in ("numpy", "numpy, bits"):
        state = _numpy_state(plain["state"])
        bit_generator(state).state = state  # whatever is wrong with it is said here
        return Saved("numpy, old" if plain.get("is_new") is False else kind, state)
    if kind == "numpy, seeds":
        return Saved(kind, _numpy_state(plain["state"]))
    raise ValueError("this is no state of a generator")


def plain_globals(*, with_others: bool) -> Plain:
    """The generator of torch that all share, and those of `random` and numpy, if they matter."""
    plain: Plain = {"torch": _plain_torch(torch.get_rng_state())}
    if with_others:
        plain["random"] = _plain_random(random.getstate())
        if HAS_NUMPY:
            plain["numpy"] = _plain_numpy(np.random.get_state(legacy=False))
    return plain


def set_plain_globals(plain: Plain) -> None:
    """Give those their state back."""
    torch.set_rng_state(_torch_state(plain["torch"]))
    if "random" in plain:
        random.setstate(_random_state(plain["random"]))
    if "numpy" in plain and HAS_NUMPY:
        np.random.set_state(_numpy_state(plain["numpy"]))


def plain_of_worker(state: bytes) -> Plain:
    """What `Randomness` knows of the generators of a worker."""
    of_torch, of_random, of_numpy, held = pickle.loads(state)
    return {
        "torch": {"kind": "torch", "state": pack(of_torch)},
        "random": _plain_random(of_random),
        "numpy": None if of_numpy is None else _plain_numpy(_as_dict(of_numpy)),
        "held": plain_held(held),
    }


def plain_held(held: Mapping[Steps, Saved]) -> list[Any]:
    """The generators that a dataset holds; one whose place cannot be told in plain words is left out."""
    return [[[list(step) for step in steps], _plain(each)] for steps, each in held.items() if is_plain(steps)]


def held_of(plain: list[Any]) -> dict[Steps, Saved]:
    """The states of generators that a dataset held."""
    held = {_steps(steps): _saved(each) for steps, each in plain}
    for each in held.values():
        make(each)  # whatever is wrong with it is said here, and not in a worker
    return held


def plain_counters(counters: Any) -> list[Any] | None:
    """What `PassCounters` says."""
    if counters is None:
        return None
    passes, values, changed = counters
    return [passes, [[[list(step) for step in way], each] for way, each in values.items() if is_plain(way)], changed]


def counters_of(plain: Any) -> tuple[int, dict[Steps, int], list[str]]:
    """What it takes."""
    passes, values, changed = plain
    return int(passes), {_steps(way): int(each) for way, each in values}, [str(each) for each in changed]


def _steps(plain: list[Any]) -> Steps:
    return tuple((str(kind), key) for kind, key in plain)


def state_of_worker(plain: Plain) -> bytes:
    """What `Randomness` takes."""
    of_torch = unpack(_checked(plain["torch"], "torch")["state"])
    make(Saved("torch", of_torch))  # refused here, and not in a worker
    of_random = _random_state(plain["random"])
    of_numpy = None if plain["numpy"] is None or not HAS_NUMPY else _numpy_state(plain["numpy"])
    if of_numpy is not None:
        np.random.RandomState().set_state(of_numpy)
    return pickle.dumps((of_torch, of_random, of_numpy, held_of(plain["held"])), 5)


def _plain_torch(state: torch.Tensor) -> Plain:
    return {"kind": "torch", "state": pack(state.numpy().tobytes() if HAS_NUMPY else bytes(state.tolist()))}


def _torch_state(plain: Plain) -> torch.Tensor:
    return torch.frombuffer(bytearray(unpack(_checked(plain, "torch")["state"])), dtype=torch.uint8)


def _plain_random(state: Any) -> Plain:
    version, words, gauss = state
    return {"kind": "random", "version": version, "words": pack(array.array("I", words).tobytes()), "gauss": gauss}


def _random_state(plain: Plain) -> tuple[Any, ...]:
    words = array.array("I", unpack(_checked(plain, "random")["words"]))
    state = (plain["version"], tuple(words), plain["gauss"])
    random.Random().setstate(state)  # whatever is wrong with it is said here
    return state


def _as_dict(state: Any) -> Any:
    """A state of numpy's older kind in the form that is common to all of them."""
    if isinstance(state, dict):
        return state
    name, key, position, has_gauss, gauss = state
    return {"bit_generator": name, "state": {"key": key, "pos": position}, "has_gauss": has_gauss, "gauss": gauss}


def _plain_numpy(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _plain_numpy(value) for name, value in part.items()}
    if isinstance(part, np.ndarray):
        return {"dtype": part.dtype.str, "array": pack(part.tobytes())}
    return part.item() if isinstance(part, np.generic) else part


def _numpy_state(part: Any) -> Any:
    if isinstance(part, dict) and set(part) == {"dtype", "array"}:
        return np.frombuffer(unpack(part["array"]), dtype=np.dtype(part["dtype"])).copy()
    return {name: _numpy_state(value) for name, value in part.items()} if isinstance(part, dict) else part


def _checked(plain: Any, kind: str) -> Plain:
    if not isinstance(plain, dict) or plain.get("kind") != kind:
        raise ValueError(f"this is no state of a generator of {kind}")
    return plain


def is_plain(steps: Steps) -> bool:
    """Whether the place can be told in plain words."""
    return all(type(key) in (str, int) for _, key in steps)
