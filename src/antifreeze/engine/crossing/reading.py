"""Objects read without asking them: through descriptors of the interpreter, so that no line of the user's code is run.

`getattr`, `isinstance`, `len` and `==` all ask. A property, a proxy or a hostile `__getattr__` would answer.
"""

from __future__ import annotations

import contextvars
import functools
import gc
import itertools
import threading
import types
from collections.abc import Iterable, Iterator
from typing import Any

# Longer containers hold more of the same: so many of their elements are read.
MOST_ELEMENTS = 256
# A cache with more results is one of data.
FEW_RESULTS = 16
# Classes whose descriptors are remembered: more than datasets have, and few enough to keep.
MOST_KNOWN = 512

_MRO: Any = type.__dict__["__mro__"]
_CLASS_NAMESPACE: Any = type.__dict__["__dict__"]
_CLASS_MODULE: Any = type.__dict__["__module__"]
_CLASS_NAME: Any = type.__dict__["__name__"]
_MODULE_NAMESPACE: Any = vars(types.ModuleType)["__dict__"]

Descriptors = tuple[tuple[str, Any], ...]
"""What reads the attributes of the objects of a class, by name."""


def ancestors(kind: type) -> tuple[type, ...]:
    """A class and all that it inherits from."""
    return _MRO.__get__(kind)  # type: ignore[no-any-return]


def is_a(thing: Any, kind: type) -> bool:
    """`isinstance` by what an object is, not by what it says of itself (`__class__`, `__instancecheck__`)."""
    return is_subclass(type(thing), kind)


def is_subclass(one: type, other: type) -> bool:
    """`issubclass` by inheritance alone."""
    return type.__subclasscheck__(other, one)


def name_of(kind: type) -> str:
    """The name of a class."""
    return _CLASS_NAME.__get__(kind)  # type: ignore[no-any-return]


def module_of(thing: Any) -> str:
    """The name of the module that a class or function, or an object's class, comes from; of a module, its own."""
    if is_a(thing, types.ModuleType):
        return text(namespace_of(thing).get("__name__"))
    if is_a(thing, types.FunctionType):
        return text(thing.__module__)
    try:
        return text(_CLASS_MODULE.__get__(thing if is_a(thing, type) else type(thing)))
    except AttributeError:  # made without one
        return ""


def package_of(thing: Any) -> str:
    """The top-level package that something comes from."""
    return module_of(thing).partition(".")[0]


def text(value: Any) -> str:
    """The same, if it is a plain string."""
    return value if type(value) is str else ""


def namespace_of(thing: Any) -> Any:
    """The `__dict__` of a module or a class."""
    return (_MODULE_NAMESPACE if is_a(thing, types.ModuleType) else _CLASS_NAMESPACE).__get__(thing)


def attributes_of(thing: Any) -> dict[str, Any]:
    """What an object holds under names, in its `__dict__` and its slots."""
    return dict(attributes(thing, descriptors(type(thing))))


def descriptors(kind: type) -> Descriptors:
    """What reads the slots and the `__dict__` of the objects of a class."""
    known = _known.get(id(kind))
    if known is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        known = _known[id(kind)] = kind, _find_descriptors(kind)
    return known[1]


def _find_descriptors(kind: type) -> Descriptors:
    return tuple(
        (name, value)
        for each in ancestors(kind)
        for name, value in list(namespace_of(each).items())
        if type(value) is types.MemberDescriptorType
        or (name == "__dict__" and type(value) is types.GetSetDescriptorType)
    )


_known: dict[int, tuple[type, Descriptors]] = {}
"""By the number of the class, which is kept, so that its number comes to stand for no other one."""


def attributes(thing: Any, by: Descriptors) -> Iterator[tuple[str, Any]]:
    """What an object holds under names, read by the descriptors of its class."""
    for name, descriptor in by:
        try:
            value = descriptor.__get__(thing)
        except Exception:  # noqa: BLE001, S112 - a slot that is empty, or a member that a library lets nobody read
            continue
        if name != "__dict__":
            yield name, value
        elif is_a(value, dict):
            yield from (entry for entry in some_entries(value) if type(entry[0]) is str)


def kept_apart(thing: Any) -> dict[str, Any]:
    """What a thread keeps in a `threading.local`, a context in its variable, a function in a small cache of `functools`."""
    if is_a(thing, threading.local):
        namespace = threading.local.__getattribute__(thing, "__dict__")
        return {name: value for name, value in some_entries(namespace) if type(name) is str}
    if type(thing) is contextvars.ContextVar:
        try:
            return {"value": thing.get()}
        except LookupError:  # not set here
            return {}
    if type(thing) is functools._lru_cache_wrapper and thing.cache_info().currsize <= FEW_RESULTS:
        return _results_of(thing)
    return {}


def _results_of(cached: Any) -> dict[str, Any]:
    """What a function with a cache of `functools` has returned, each by the arguments.

    Not by its place: a cache with a limit keeps the results in the order of their last use.
    """
    held = gc.get_referents(cached)
    entries: dict[Any, Any] = next((part for part in held if type(part) is dict and part is not cached.__dict__), {})
    results = list(entries.items())
    if any(name_of(type(result)) == "_lru_list_elem" for _, result in results):
        # There is a limit. Its class, then of each entry key, result and class; the dict has the order of the first uses.
        places = {id(key): place for place, key in enumerate(entries)}
        triples = zip(held[1::3], held[2::3], range(len(entries)), strict=False)
        results = [(key, result) for key, result, _ in triples if id(key) in places]
        results.sort(key=lambda entry: places[id(entry[0])])
    named: dict[str, Any] = {}
    for key, result in results:
        name = _name_of_arguments(key)
        while name in named:
            name += "'"
        named[name] = result
    return named


def _name_of_arguments(key: Any) -> str:
    """A name that is the same in every process; of what is no plain value, its class alone."""
    if type(key) is tuple:
        return f"({', '.join(map(_name_of_arguments, key))})"
    is_plain = any(type(key) is kind for kind in (int, str, bytes, float, bool, type(None)))
    return repr(key) if is_plain else name_of(type(key))


def is_public(name: str) -> bool:
    """Whether an object does not keep this attribute to itself; Python's own (`__self__`) are public."""
    return not name.startswith("_") or name.startswith("__")


def some_entries(mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """The first entries of a dict, of whatever subclass."""
    return some_elements(dict.items(mapping)) or some_elements(dict.items(mapping))  # another thread may be changing it


def some_elements(elements: Iterable[Any]) -> list[Any]:
    """The first of these."""
    try:
        return list(itertools.islice(elements, MOST_ELEMENTS))
    except RuntimeError:  # another thread has changed it meanwhile
        return []


def spread(sequence: Any, kind: Any) -> Iterator[tuple[int, Any]]:
    """Elements of a list or tuple, with their places: all of a short one, of a long one some at equal distances."""
    step = -(-kind.__len__(sequence) // MOST_ELEMENTS) or 1
    return zip(itertools.count(0, step), kind.__getitem__(sequence, slice(None, None, step)), strict=False)
