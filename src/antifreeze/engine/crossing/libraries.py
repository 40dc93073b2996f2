"""Library modules that a clean stem imports once for all workers that the user wants spawned.

User modules are not among them: each worker imports those itself, as a spawned worker does. Of the libraries (Python's and
installed packages), only those are kept that can be shared by a fork: a module that starts a thread when it is imported,
that opens a file or a connection, that keeps a random generator or a lock of `multiprocessing` anywhere (in a container, as
the attribute of a class, as the default of an argument), or the process id among its globals, also in a path, is left to
them. So is one whose import fails here: the program may do something before it imports it, and what half an import
has left behind (submodules, entries of registries) would be in the way of a whole one.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import re
import sys
import types
import uuid
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from antifreeze import machine
from antifreeze.engine.crossing.by_value import MAIN
from antifreeze.engine.crossing.state import is_user_module, library_directories

# Of these, each process should have its own. (A module whose own globals are of these kinds has been imported before.)
_OWN = (
    ("random", "Random"),
    ("socket", "socket"),
    ("numpy.random", "Generator"),
    ("numpy.random", "RandomState"),
    ("numpy.random", "BitGenerator"),
    ("tempfile", "TemporaryDirectory"),
    (uuid.__name__, "UUID"),
)
# The same; the collector does not know these, but what holds them.
_OWN_UNTRACKED = (("torch", "Generator"), ("_multiprocessing", "SemLock"))


def within_reach(names: Iterable[str]) -> list[str]:
    """In the trainer: the libraries that an import of these modules imports, in the order in which they were imported here.

    What user modules import is found by looking at their globals.
    """
    found: set[str] = set()
    seen: set[str] = set()
    waiting = deque(names)
    directories = library_directories()
    while waiting:
        name = waiting.popleft()
        module = sys.modules.get(name)
        if name in seen or not isinstance(module, types.ModuleType) or name in MAIN:
            continue
        seen.add(name)
        if is_user_module(module, directories):
            waiting.extend(_modules_of_globals(module))
        else:
            found.add(name)
    return [name for name in list(sys.modules) if name in found]


def _modules_of_globals(module: types.ModuleType) -> Iterator[str]:
    for value in list(vars(module).values()):
        if isinstance(value, types.ModuleType):
            yield value.__name__
        elif isinstance(value, type | types.FunctionType) and isinstance(value.__module__, str):
            yield value.__module__


def import_libraries(names: Iterable[str]) -> set[str]:
    """In a new clean stem: import these; returns those that a fork must not share, which makes it useless as a stem."""
    hazardous: set[str] = set()
    with _quiet_warnings(), _all_frozen():
        for name in names:
            known, left = set(sys.modules), machine.descriptors_left()
            gc.freeze()
            has_failed = _fails_to_import(name)
            if len(machine.thread_names()) > 1:
                return hazardous | {name}
            new = sys.modules.keys() - known
            has_opened = machine.descriptors_left() < left
            if has_failed or (
                new and (has_opened or _has_made_own() or any(_keeps_pid(sys.modules[each]) for each in new))
            ):
                hazardous.add(name)
    return hazardous


def _fails_to_import(name: str) -> bool:
    """Import this module; returns whether that stopped half-way. One that is not there leaves nothing behind."""
    try:
        importlib.import_module(name)
    except Exception as error:  # of the library's code; if a worker meets the same, it tells the trainer
        return not (isinstance(error, ModuleNotFoundError) and error.name == name)
    return False


@contextmanager
def _all_frozen() -> Iterator[None]:
    """While this lasts, what the collector is told to freeze is not among the objects that it knows."""
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _quiet_warnings() -> Iterator[None]:
    """Warnings about libraries are the program's to filter; not by `catch_warnings`, which undoes filters that they add."""
    shown, warnings.showwarning = warnings.showwarning, _show_nothing
    try:
        yield
    finally:
        if warnings.showwarning is _show_nothing:
            warnings.showwarning = shown


def _show_nothing(*_: Any, **__: Any) -> None:
    pass


def _has_made_own() -> bool:
    """Whether any object that is not frozen is such that workers which share it behave otherwise than spawned ones."""
    gc.collect()
    made = gc.get_objects()
    kinds, untracked = _kinds(_OWN), _kinds(_OWN_UNTRACKED)
    return any(
        issubclass(type(thing), kinds) and not issubclass(type(thing), random.SystemRandom) for thing in made
    ) or any(
        issubclass(type(thing), untracked) and thing is not torch.default_generator  # torch seeds it in every worker
        for thing in _held_by(made)
    )


def _held_by(things: list[Any]) -> Iterator[Any]:
    """What these objects hold; the collector does not know tuples and dicts of nothing but what it does not know."""
    while things:
        held = gc.get_referents(*things)
        yield from held
        things = [each for each in held if type(each) in (tuple, dict) and not gc.is_tracked(each)]


def _kinds(names: Iterable[tuple[str, str]]) -> tuple[type, ...]:
    return tuple(getattr(sys.modules[module], name) for module, name in names if module in sys.modules)


def _keeps_pid(module: Any) -> bool:
    """Whether this module, or an object that it has made of a class of its own, remembers which process this is."""
    if not isinstance(module, types.ModuleType):
        return False
    try:
        return any(
            _is_pid(key, value) or (_is_made_in(module, value) and any(map(_is_pid, vars(value), vars(value).values())))
            for key, value in list(vars(module).items())
        )
    except Exception:  # an object that does not let itself be looked at
        return True


def _is_made_in(module: types.ModuleType, value: Any) -> bool:
    return type(value).__module__ == module.__name__ and hasattr(type(value), "__dict__") and hasattr(value, "__dict__")


def _is_pid(key: Any, value: Any) -> bool:
    if type(value) is str and "/" in value and isinstance(key, str) and not key.startswith("__"):
        return str(os.getpid()) in re.findall(r"\d+", value)  # a folder or a file of this process
    return type(value) is int and value == os.getpid() and isinstance(key, str) and "pid" in key.lower()
