"""Objects read without asking them: through descriptors of the interpreter, so that no line of the user's code is run.

`getattr`, `isinstance`, `len` and `==` all ask. A property, a proxy or a hostile `__getattr__` would answer.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterable, Iterator
from typing import Any

# Longer containers hold more of the same: so many of their elements are read.
MOST_ELEMENTS = 256
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
