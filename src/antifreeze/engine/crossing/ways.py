"""The way from a root to an object that it holds, step by step: in words, and as steps that can be gone again elsewhere.

Nothing of the user's is asked on the way, and nothing is set through a method of the user's.
"""

from __future__ import annotations

import itertools
import os
import sys
import types
from collections import OrderedDict, deque
from typing import Any

from antifreeze.engine.crossing.reading import ancestors, descriptors, is_a, kept_apart, namespace_of, text

MOST_CHARACTERS = 40

Step = tuple[str, Any]
"""From an object to one that it holds: what kind of step, and which one of that kind. attribute: a name. item: a key of a
dict, a place in a sequence. pid: what a dict has under the number of this process. value: the place of an entry in a dict
whose keys are objects. element: a place in a set. cell: a variable of a closure. apart: a name of what is kept apart
(`reading.py`). class: a place among the classes that an object's class inherits from. global: module and name of what a
function uses. module: the name of one."""
Steps = tuple[Step, ...]

_GONE_TO = (list, tuple, deque)


class Way:
    """How an object was found."""

    __slots__ = ("_before", "_step", "_words", "has_more", "length")

    def __init__(self, before: Way | None, kind: str, key: Any, words: str | None = None) -> None:
        """`words`: how the step is written, where its key does not tell."""
        self._before = before
        self._step = kind, key
        self._words = words
        self.length: int = before.length + 1 if before is not None else 1
        self.has_more = False
        """Whether what it leads to holds more than was looked at."""

    def leave_out(self) -> None:
        """It was not gone to its end."""
        if self._before is not None:
            self._before.has_more = True

    @property
    def of_many(self) -> bool:
        """Whether it leads through something that holds more than was looked at."""
        way: Way | None = self
        while way is not None and not way.has_more:
            way = way._before
        return way is not None

    @property
    def steps(self) -> Steps:
        """All steps of it."""
        steps = []
        way: Way | None = self
        while way is not None:
            steps.append(way._step)
            way = way._before
        return tuple(reversed(steps))

    def __str__(self) -> str:
        parts: list[str] = []
        way: Way | None = self
        while way is not None:
            kind, key = way._step
            if way._before is None or kind in ("global", "module"):  # whoever uses a global, it is the same
                parts.append(key)
                break
            parts.append(_words(kind, key) if way._words is None else way._words)
            way = way._before
        return "".join(reversed(parts))


def _words(kind: str, key: Any) -> str:
    match kind:
        case "attribute":
            return f".{key}"
        case "item":
            text = repr(key)
            return f"[{text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + '…'}]"
        case "cell":
            return f".<{key}>"
        case _:
            return "{…}" if kind == "element" else ""


def follow(thing: Any, step: Step) -> Any:
    """Where this step leads to; AttributeError, LookupError, ValueError or TypeError if it leads nowhere."""
    kind, key = step
    match kind:
        case "attribute":
            return _attribute(thing, key)
        case "item":
            return _container(thing).__getitem__(thing, key)
        case "pid":
            return dict.__getitem__(thing, os.getpid())
        case "value":
            return next(itertools.islice(dict.values(thing), key, None), None)
        case "element":
            elements = set.__iter__(thing) if is_a(thing, set) else frozenset.__iter__(thing)
            return next(itertools.islice(elements, key, None), None)
        case "cell":
            return _cell(thing, key).cell_contents
        case "apart":
            return kept_apart(thing)[key]
        case "class":
            return ancestors(thing if is_a(thing, type) else type(thing))[key]
        case "global":
            return dict.__getitem__(thing.__globals__, key.rpartition(".")[2])
        case "module":
            return sys.modules[key]
    raise LookupError(f"{kind!r} is no step")


def replace(holder: Any, step: Step, thing: Any) -> None:
    """Put something where this step leads to, if it can be put there."""
    kind, key = step
    match kind:
        case "attribute":
            _set_attribute(holder, key, thing)
        case "item":
            _container(holder).__setitem__(holder, key, thing)
        case "pid":
            _mapping(holder).__setitem__(holder, os.getpid(), thing)
        case "cell":
            _cell(holder, key).cell_contents = thing
        case "global":
            dict.__setitem__(holder.__globals__, key.rpartition(".")[2], thing)
        case _:
            raise TypeError(f"nothing can be put there by a step of kind {kind!r}")


def remove(holder: Any, step: Step) -> None:
    """Leave nothing where this step leads to, if it can be left empty."""
    kind, key = step
    match kind:
        case "attribute":
            _remove_attribute(holder, key)
        case "item" if is_a(holder, list):
            if key != list.__len__(holder) - 1:
                raise IndexError("what comes after it would move up")
            list.__delitem__(holder, key)
        case "item":
            _mapping(holder).__delitem__(holder, key)
        case "cell":
            del _cell(holder, key).cell_contents
        case "global":
            dict.__delitem__(holder.__globals__, key.rpartition(".")[2])
        case _:
            raise TypeError(f"nothing can be taken away by a step of kind {kind!r}")


def global_step(function: types.FunctionType, name: str) -> Step:
    """From a function to a global that its code names."""
    return "global", f"{text(function.__module__)}.{name}"


def _remove_attribute(holder: Any, name: str) -> None:
    if is_a(holder, type):
        type.__delattr__(holder, name)
        return
    for where, descriptor in descriptors(type(holder)):
        if where == name:
            descriptor.__delete__(holder)
            return
        if where == "__dict__" and name in (namespace := descriptor.__get__(holder)):
            dict.__delitem__(namespace, name)
            return
    raise AttributeError(name)


def _attribute(thing: Any, name: str) -> Any:
    if is_a(thing, type) or is_a(thing, types.ModuleType):
        return namespace_of(thing)[name]
    if is_a(thing, types.FunctionType) or is_a(thing, types.BuiltinFunctionType):
        return getattr(thing, name)  # classes that nobody can inherit from
    for where, descriptor in descriptors(type(thing)):
        if where == name:
            return descriptor.__get__(thing)
        if where == "__dict__" and name in (namespace := descriptor.__get__(thing)):
            return dict.__getitem__(namespace, name)
    raise AttributeError(name)


def _set_attribute(holder: Any, name: str, thing: Any) -> None:
    if is_a(holder, type):
        type.__setattr__(holder, name, thing)
        return
    if is_a(holder, types.ModuleType):
        namespace_of(holder)[name] = thing
        return
    for where, descriptor in descriptors(type(holder)):
        if where == name:
            descriptor.__set__(holder, thing)
            return
        if where == "__dict__":
            dict.__setitem__(descriptor.__get__(holder), name, thing)
            return
    raise AttributeError(name)


def _container(thing: Any) -> Any:
    return next((kind for kind in _GONE_TO if is_a(thing, kind)), None) or _mapping(thing)


def _mapping(thing: Any) -> Any:
    return OrderedDict if is_a(thing, OrderedDict) else dict  # it keeps an order, which dict's own methods would break


def _cell(function: Any, key: str | int) -> Any:
    place = key if isinstance(key, int) else function.__code__.co_freevars.index(key)
    return function.__closure__[place]
