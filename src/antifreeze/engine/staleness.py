"""Whether a dataset has been changed since its workers were started: kept workers do not see that.

A dataset is described by what can be seen of it in a moment: its plain attributes, the lengths of its containers, the
versions of its tensors. Two descriptions that differ are evidence of a change; two that do not are none of the contrary.
"""

from __future__ import annotations

import random
import sys
import types
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import Dataset

from antifreeze.engine.crossing.reading import attributes_of, is_a, name_of, namespace_of, some_entries
from antifreeze.engine.crossing.state import is_user_module, library_directories
from antifreeze.torch_side.tensors import as_plain_tensors, version_of
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:
    import numpy as np

# Enough for wrapped datasets and their settings, and too few to be felt at the start of an epoch.
MOST_OBJECTS = 1000
MOST_ITEMS = 32
MOST_BYTES = 4096
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset)


def describe(dataset: Any) -> dict[str, Any]:
    """What can be seen of a dataset, by path."""
    seen: dict[int, Any] = {}
    traits: dict[str, Any] = {}
    waiting: deque[tuple[str, Any]] = deque([("dataset", dataset)])
    while waiting and len(traits) < MOST_OBJECTS:
        path, thing = waiting.popleft()
        if _is_plain(thing):
            # As text, in which a number that is none (NaN) equals itself.
            traits[path] = repr(thing) if not isinstance(thing, str | bytes) else hash(thing)
        elif id(thing) not in seen:
            seen[id(thing)] = thing
            traits[path] = _trait(thing)
            waiting.extend((path + step, part) for step, part in _parts(thing))
    return traits


def describe_modules() -> dict[str, Any]:
    """What can be seen of the globals of the user's modules, and of the attributes of their classes."""
    libraries = library_directories()
    traits: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if is_a(module, types.ModuleType) and (name == "__main__" or is_user_module(module, libraries)):
            for key, thing in _own_names(module):
                if is_a(thing, type):
                    if namespace_of(thing).get("__module__") in (name, "__main__"):
                        traits.update((f"{name}.{key}.{each}", _seen(held)) for each, held in _own_names(thing))
                else:
                    traits[f"{name}.{key}"] = _seen(thing)
    return traits


def _own_names(holder: Any) -> Iterator[tuple[str, Any]]:
    for name, thing in list(namespace_of(holder).items()):
        if not (isinstance(name, str) and name.startswith("__")) and not is_a(thing, types.FunctionType):
            yield name, thing


def _seen(thing: Any) -> Any:
    """What can be seen of an object, and of what it holds itself."""
    if _is_plain(thing):
        return repr(thing)
    try:
        return _trait(thing), {step: repr(part) for step, part in _parts(thing) if _is_plain(part)}
    except Exception:  # of an object of a library's, which does not let itself be looked at
        return None


def _is_plain(thing: Any) -> bool:
    return any(type(thing) is kind for kind in _PLAIN)  # `in` would ask the class what it is equal to


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The path of something that has changed, the nearest to the root; None: nothing that can be seen."""
    changed = [path for path in {**before, **now} if before.get(path, _ABSENT) != now.get(path, _ABSENT)]
    return min(changed, key=len, default=None)


_ABSENT = object()


def _trait(thing: Any) -> Any:
    try:
        return _look_at(thing)
    except Exception:  # of a sparse or an inference tensor, or of a class of the user's: it does not show what it is
        return name_of(type(thing))


def _look_at(thing: Any) -> Any:
    if is_a(thing, torch.Tensor):
        with as_plain_tensors():
            # What lies in shared memory is seen by all.
            is_shared = torch.Tensor.is_shared(thing)  # type: ignore[no-untyped-call]
            return None if is_shared else (tuple(thing.shape), str(thing.dtype), version_of(thing))
    if HAS_NUMPY and type(thing) is np.ndarray:
        return thing.shape, str(thing.dtype), _checksum(thing)
    for kind in _CONTAINERS:
        if is_a(thing, kind):
            return name_of(type(thing)), kind.__len__(thing)
    return name_of(type(thing))


def _checksum(array: Any) -> int:
    """Of a part of it: a change of a few numbers in the midst of many is not noticed."""
    if array.dtype.hasobject:
        return 0
    return zlib.crc32(array.flat[: MOST_BYTES // max(1, array.itemsize)].tobytes())


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    # A generator that is drawn from is not changed by anybody.
    if any(is_a(thing, kind) for kind in (torch.Tensor, type, types.ModuleType, random.Random)):
        return
    if type(thing) is dict:
        if len(thing) <= MOST_ITEMS:
            yield from ((f"[{key!r}]", part) for key, part in some_entries(thing) if _is_plain(key))
    elif type(thing) is list or type(thing) is tuple:
        if len(thing) <= MOST_ITEMS:
            yield from ((f"[{number}]", part) for number, part in enumerate(thing))
    else:
        # torch's own data pipes keep the seed of the pass in a private attribute.
        is_dataset = is_a(thing, Dataset) and not type(thing).__module__.startswith("torch.")
        for name, part in attributes_of(thing).items():
            if is_dataset or not name.startswith("_"):  # what others keep to themselves may be a cache (pandas)
                yield f".{name}", part
