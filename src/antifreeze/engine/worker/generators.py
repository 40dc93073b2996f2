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
from torch.utils.data._utils import HAS_NUMPY

from antifreeze.engine.plan.progress import pack, unpack
from antifreeze.engine.worker.randomness import Path

if HAS_NUMPY:
    import numpy as np

Plain = dict[str, Any]


def is_generator(thing: Any) -> bool:
    """Whether it is a generator of a kind that we know."""
    kinds: tuple[type, ...] = (torch.Generator, random.Random)
    if HAS_NUMPY:
        kinds += (np.random.Generator, np.random.RandomState)
    return isinstance(thing, kinds) and thing is not random._inst


def plain_of(generator: Any) -> Plain:
    """The state of one generator."""
    if isinstance(generator, torch.Generator):
        return _plain_torch(generator.get_state())
    if isinstance(generator, random.Random):
        return _plain_random(generator.getstate())
    if isinstance(generator, np.random.Generator):
        return {"kind": "numpy", "is_new": True, "state": _plain_numpy(generator.bit_generator.state)}
    return {"kind": "numpy", "is_new": False, "state": _plain_numpy(generator.get_state(legacy=False))}


def set_plain(generator: Any, plain: Plain) -> None:
    """Give a generator this state; of another kind, it raises ValueError or TypeError."""
    if isinstance(generator, torch.Generator):
        generator.set_state(_torch_state(plain))
    elif isinstance(generator, random.Random):
        generator.setstate(_random_state(plain))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = _numpy_state(_checked(plain, "numpy")["state"])
    else:
        generator.set_state(_numpy_state(_checked(plain, "numpy")["state"]))


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
        "torch": {"kind": "torch", "state": pack(bytes(of_torch))},
        "random": _plain_random(of_random),
        "numpy": None if of_numpy is None else _plain_numpy(_as_dict(of_numpy)),
        "held": plain_held(held),
    }


def plain_held(held: Mapping[Path, Any]) -> list[Any]:
    """The generators that a dataset holds; one whose place cannot be told in plain words is left out."""
    return [[[list(step) for step in path], plain_of(each)] for path, each in held.items() if _is_plain(path)]


def held_of(plain: list[Any]) -> dict[Path, Any]:
    """Generators such as those that a dataset held."""
    return {tuple((str(kind), key) for kind, key in path): _generator(each) for path, each in plain}


def state_of_worker(plain: Plain) -> bytes:
    """What `Randomness` takes."""
    of_torch = bytearray(unpack(_checked(plain["torch"], "torch")["state"]))
    torch.Generator().set_state(torch.frombuffer(of_torch, dtype=torch.uint8))  # refused here, and not in a worker
    of_random = _random_state(plain["random"])
    of_numpy = None if plain["numpy"] is None or not HAS_NUMPY else _numpy_state(plain["numpy"])
    if of_numpy is not None:
        np.random.RandomState().set_state(of_numpy)
    return pickle.dumps((of_torch, of_random, of_numpy, held_of(plain["held"])), 5)


def _generator(plain: Plain) -> Any:
    """A generator in this state."""
    generator: Any
    if plain["kind"] == "torch":
        generator = torch.Generator()
    elif plain["kind"] == "random":
        generator = random.Random()
    else:
        bits = _bit_generator(plain["state"]["bit_generator"])
        generator = np.random.Generator(bits) if plain["is_new"] else np.random.RandomState(bits)
    set_plain(generator, plain)
    return generator


def _bit_generator(name: str) -> Any:
    kind = getattr(np.random, name, None)
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise ValueError(f"numpy has no generator {name!r}")
    return kind()


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


def _is_plain(path: Path) -> bool:
    return all(type(key) in (str, int) for _, key in path)
