"""What pickle sends by its name, or not at all, though it can be made anew on the other side.

An object whose reduction is a name (a singleton, a function with a cache, a NewType) is looked up in its module there; in
a main module that the other side does not import there is nothing to be found. It travels by value then, and once: what
refers to it refers to the same object on the other side.

Which names there are where the main module is imported is read from its source, which does not tell of `exec`, of
`globals()[name] = …`, or of a `global` in a function. So what has a name here is made there only if the import has given
nothing that name.
"""

from __future__ import annotations

import copyreg
import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from cloudpickle.cloudpickle import _make_skeleton_class

MAIN = ("__main__", "__mp_main__")

_alive: list[Any] = []
"""In a clean stem: what only weak references lead to; in the trainer it is alive, too."""


def find_by_name(module: str, name: str) -> Any:
    """What a dotted name of a module stands for; None if that is nothing."""
    return functools.reduce(lambda found, part: getattr(found, part, None), name.split("."), sys.modules.get(module))


def is_in_main(thing: Any, name: str, main_names: frozenset[str]) -> bool:
    """Whether the other side finds it under this name in the main module, of which it has so many names."""
    return (
        getattr(thing, "__module__", None) in MAIN
        and name.partition(".")[0] in main_names
        and find_by_name("__main__", name) is thing
    )


def goes_by_name(thing: Any) -> bool:
    """Whether the reduction of an object of the main module may be a name: it is not the one that all objects have."""
    if getattr(thing, "__module__", None) not in MAIN:
        return False
    kind: Any = type(thing)
    return kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__


def reduce_nameless(thing: Any) -> tuple[Any, ...]:
    """The reduction of an object that wants to go by its name and cannot."""
    if isinstance(thing, functools._lru_cache_wrapper):
        return _cached, (thing.__wrapped__, thing.cache_parameters()), vars(thing)
    return copyreg.__newobj__, (type(thing),), thing.__getstate__()  # type: ignore[attr-defined]


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def module_of_misnamed(thing: Any, reduced: tuple[Any, ...]) -> types.ModuleType | None:
    """Where a class of C code is found that says it is one of Python's own, as `lmdb.Environment` does."""
    if reduced[0] is not _make_skeleton_class or thing.__module__ != "builtins":
        return None
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType) and vars(module).get(thing.__name__) is thing:
            return module
    return None


def made_if_missing(thing: Any, name: str, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """A reduction of something in the main module; where its name leads to something on the other side, it is that."""
    if getattr(thing, "__module__", None) not in MAIN or find_by_name("__main__", name) is not thing:
        return reduced
    make, arguments, state, _, _, set_state = (*reduced, None, None, None, None)[:6]
    return _find_or_make, (name, make, *arguments), state, None, None, functools.partial(_complete, name, set_state)


def _find_or_make(name: str, make: Callable[..., Any], *arguments: Any) -> Any:
    found = find_by_name("__main__", name)
    return make(*arguments) if found is None else found


def _complete(name: str, set_state: Callable[[Any, Any], object] | None, thing: Any, state: Any) -> None:
    if find_by_name("__main__", name) is thing:
        return
    if set_state is not None:
        set_state(thing, state)
    elif hasattr(thing, "__setstate__"):
        thing.__setstate__(state)
    else:
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        vars(thing).update(attributes or {})
        for slot, value in (slots or {}).items():
            setattr(thing, slot, value)


class MainGlobals:
    """Stands in a pickle for the globals of the main module: functions by value share them with those by name."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _globals_of_main, ()


def _globals_of_main() -> dict[str, Any]:
    return vars(sys.modules["__main__"])


def in_main_globals(function: types.FunctionType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """cloudpickle's reduction of a function, with the globals of the other side's main module if it is one of ours."""
    if function.__globals__ is not vars(sys.modules["__main__"]):
        return reduced
    make, (code, _, *others), *rest = reduced
    return make, (code, MainGlobals(), *others), *rest


# --- classes

_made: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()


def made_once(reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """cloudpickle's reduction of a class, for one that its own base or metaclass refers to.

    Such a class stands in the pickle twice, and the second is thrown away; but a base that is told of its subclasses, or a
    metaclass, would know the wrong one.
    """
    make, arguments, *rest = reduced
    if not rest:  # a type of the language, which is only looked up
        return reduced
    return _make_once, (make, *arguments), *rest


def _make_once(make: Callable[..., type], *arguments: Any) -> type:
    number: str = arguments[-2]  # cloudpickle's own for this class
    made = _made.get(number)
    if made is None:
        made = _made[number] = make(*arguments)
    return made


# --- weak references


def _reduce_reference(reference: weakref.ref[Any]) -> tuple[Any, ...]:
    return _refer, (reference(),)


def _refer(thing: Any) -> weakref.ref[Any]:
    if thing is None:
        return weakref.ref(type("Gone", (), {})())  # a reference to something that is no more
    _alive.append(thing)
    return weakref.ref(thing)


def _reduce_weak_dict(weak: Any) -> tuple[Any, ...]:
    return _fill, (type(weak), dict(weak))


def _reduce_weak_set(weak: Any) -> tuple[Any, ...]:
    return _fill, (type(weak), list(weak))


def _fill(kind: Callable[[Any], Any], entries: Any) -> Any:
    _alive.append(entries)
    return kind(entries)


REDUCERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    weakref.ref: _reduce_reference,
    weakref.WeakKeyDictionary: _reduce_weak_dict,
    weakref.WeakValueDictionary: _reduce_weak_dict,
    weakref.WeakSet: _reduce_weak_set,
}
