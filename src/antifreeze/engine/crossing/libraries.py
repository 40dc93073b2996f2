"""Library modules that a clean stem imports once for all workers that the user wants spawned.

User modules are not among them: each worker imports those itself, as a spawned worker does. Of the libraries (Python's and
installed packages), only those are kept that can be shared by a fork: a module that starts a thread when it is imported, or
that keeps a random generator, a socket or the process id among its globals, is left to the workers, too.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from antifreeze import machine
from antifreeze.engine.crossing.by_value import MAIN
from antifreeze.engine.crossing.state import is_user_module, library_directories

# Of these, each process should have its own.
_OWN = (
    ("random", "Random"),
    ("socket", "socket"),
    ("numpy.random", "Generator"),
    ("numpy.random", "RandomState"),
    ("numpy.random", "BitGenerator"),
    ("torch", "Generator"),
    ("uuid", "UUID"),
)
_WELL_KNOWN = ("random", "uuid", "numpy.random", "numpy.random.mtrand")


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
    with _quiet_warnings():
        for name in names:
            known = set(sys.modules)
            with suppress(Exception):  # a worker meets the same when it imports it, and tells the trainer
                importlib.import_module(name)
            if len(machine.thread_names()) > 1:
                return hazardous | {name}
            if any(_is_hazardous(sys.modules[new]) for new in sys.modules.keys() - known):
                hazardous.add(name)
    return hazardous


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


def _is_hazardous(module: Any) -> bool:
    """Whether workers that share the globals of this module would behave otherwise than spawned ones."""
    if not isinstance(module, types.ModuleType) or module.__name__ in _WELL_KNOWN:
        return False
    is_own = _hazards(os.getpid())
    try:
        return any(
            # One step into objects that the module has made of its own classes.
            is_own(key, value) or (_is_made_in(module, value) and any(map(is_own, vars(value), vars(value).values())))
            for key, value in list(vars(module).items())
        )
    except Exception:  # an object that does not let itself be looked at
        return True


def _is_made_in(module: types.ModuleType, value: Any) -> bool:
    return type(value).__module__ == module.__name__ and hasattr(type(value), "__dict__") and hasattr(value, "__dict__")


def _hazards(pid: int) -> Callable[[Any, Any], bool]:
    """A question about a name and what it stands for."""
    kinds = tuple(getattr(sys.modules[module], name) for module, name in _OWN if module in sys.modules)
    shared = (random._inst, getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None))

    def is_own(key: Any, value: Any) -> bool:
        if type(value) is int:
            return value == pid and isinstance(key, str) and "pid" in key.lower()
        return (
            issubclass(type(value), kinds)
            and not issubclass(type(value), random.SystemRandom)
            and not any(value is known for known in shared)  # torch seeds these in every worker
        )

    return is_own
