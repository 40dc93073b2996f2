"""Program state that a forked worker would have inherited: captured in the trainer, put in place in a clean stem.

First the surroundings (environment, directories, paths, limits, the main module), so that the dataset can be rebuilt;
then, with the dataset, the globals and class attributes of user modules that differ from a fresh import. Those that are
simple are copied; others that have another type than after a fresh import are named, so that the user is told.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import re
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path, PurePath
from typing import Any

import torch

from antifreeze import machine
from antifreeze.engine.crossing.main_module import MainModule, import_main
from antifreeze.whenimported import when_imported

_SCALARS = (type(None), bool, int, float, complex, str, bytes, PurePath, enum.Enum, re.Pattern, torch.dtype)
_REFERENCES = (type, types.FunctionType)
# A registry or a configuration is small; what is larger is data, and belongs to the dataset.
MOST_ELEMENTS = 10_000

# Switches of libraries that programs set at run time and that change what samples look like.
LIBRARY_SWITCHES = {
    "PIL.ImageFile": ("LOAD_TRUNCATED_IMAGES", "MAXBLOCK"),
    "PIL.Image": ("MAX_IMAGE_PIXELS",),
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What must be in place before anything of the user's is imported."""

    environ: dict[str, str]
    umask: int | None
    limits: dict[int, tuple[int, int]]
    affinity: frozenset[int]
    warning_filters: list[Any]
    logging_levels: dict[str, int]
    logging_disabled: int
    default_dtype: torch.dtype
    deterministic: bool
    matmul_precision: str
    recursion_limit: int
    preparation: dict[str, Any]
    """For `multiprocessing.spawn.prepare`: directories, `sys.path`, `sys.argv`, start method, authentication key."""
    main: MainModule


def capture_surroundings(main: MainModule) -> Surroundings:
    """The trainer's, as they are now."""
    return Surroundings(
        environ=dict(os.environ),
        umask=machine.umask(),
        limits=_limits(),
        affinity=frozenset(os.sched_getaffinity(0)),
        warning_filters=[entry for entry in warnings.filters if _is_plain_filter(entry)],
        logging_levels=_logging_levels(),
        logging_disabled=logging.root.manager.disable,
        default_dtype=torch.get_default_dtype(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        matmul_precision=torch.get_float32_matmul_precision(),
        recursion_limit=sys.getrecursionlimit(),
        preparation=_preparation(),
        main=main,
    )


def settle(wanted: Surroundings) -> None:
    """Make this process's surroundings like the trainer's."""
    os.environ.clear()
    os.environ.update(wanted.environ)
    if wanted.umask is not None:
        os.umask(wanted.umask)
    _apply_limits(wanted.limits)
    with contextlib.suppress(OSError):  # the trainer's processors may have been taken away since
        os.sched_setaffinity(0, wanted.affinity)
    torch.set_default_dtype(wanted.default_dtype)
    if wanted.deterministic != torch.are_deterministic_algorithms_enabled():  # the call alone takes seconds of imports
        torch.use_deterministic_algorithms(wanted.deterministic)
    torch.set_float32_matmul_precision(wanted.matmul_precision)
    sys.setrecursionlimit(wanted.recursion_limit)
    spawn.prepare(wanted.preparation)
    import_main(wanted.main)
    # After the import of the main module, which may set its own: the trainer's are what counts.
    warnings.resetwarnings()
    warnings.filters[:] = wanted.warning_filters  # type: ignore[index]
    logging.disable(wanted.logging_disabled)
    for name, level in wanted.logging_levels.items():
        logging.getLogger(name).setLevel(level)


@dataclass(frozen=True, slots=True)
class ModuleState:
    """Globals and class attributes of one module, as they are in the trainer."""

    simple: dict[str, Any]
    types_of_others: dict[str, str]
    """Type names of the globals that are not simple."""
    class_attributes: dict[str, dict[str, Any]]


def capture_modules() -> dict[str, ModuleState]:
    """The state of all user modules of the trainer, and the switches of libraries."""
    states = {}
    libraries = _library_directories()
    for name, module in list(sys.modules.items()):
        if name == "__mp_main__" or not isinstance(module, types.ModuleType):
            continue
        if name in LIBRARY_SWITCHES:
            simple = {switch: getattr(module, switch) for switch in LIBRARY_SWITCHES[name] if hasattr(module, switch)}
            states[name] = ModuleState(simple, {}, {})
        elif _is_user_module(module, libraries):
            states[name] = _module_state(name, module)
    return states


def settle_modules(states: dict[str, ModuleState]) -> list[str]:
    """Put module state in place, now or when a module is imported later; returns the names of what still differs."""
    differing: list[str] = []
    for name, state in states.items():

        def apply(module: types.ModuleType, name: str = name, state: ModuleState = state) -> None:
            differing.extend(_apply(name, module, state))

        when_imported(name, apply)
    return differing


def _module_state(name: str, module: types.ModuleType) -> ModuleState:
    simple, others, classes = {}, {}, {}
    for key, value in list(vars(module).items()):
        if key.startswith("__") or isinstance(value, types.ModuleType):
            continue
        if isinstance(value, type):
            if value.__module__ == name and value.__qualname__ == key:
                classes[key] = {
                    attribute: held
                    for attribute, held in list(vars(value).items())
                    if not attribute.startswith("__") and not isinstance(held, _REFERENCES) and is_simple(held)
                }
        elif isinstance(value, _REFERENCES):
            continue
        elif is_simple(value):
            simple[key] = value
        else:
            others[key] = type(value).__qualname__
    return ModuleState(simple, others, {key: held for key, held in classes.items() if held})


def _apply(name: str, module: types.ModuleType, state: ModuleState) -> Iterator[str]:
    for key, value in state.simple.items():
        _put(module, key, value)
    for class_name, attributes in state.class_attributes.items():
        owner = getattr(module, class_name, None)
        if isinstance(owner, type):
            for key, value in attributes.items():
                _put(owner, key, value)
    for key, kind in state.types_of_others.items():
        # A name that a fresh import does not make is a variable of the main guard or of an interactive session.
        here = type(vars(module)[key]).__qualname__ if key in vars(module) else kind
        if here != kind:
            yield f"{name}.{key} is a {kind} in the program and a {here} in its workers"


def _put(owner: Any, key: str, value: Any) -> None:
    current = vars(owner).get(key, _MISSING)
    # In place where that can be: other modules may have imported the very object.
    if type(current) is type(value) and isinstance(value, dict | set):
        current.clear()
        current.update(value)
    elif type(current) is type(value) and isinstance(value, list):
        current[:] = value
    elif current is not value:
        setattr(owner, key, value)


_MISSING = object()


def is_simple(value: Any) -> bool:
    """Whether a value is plain data (or references to code) all the way down, and not too much of it."""
    left = MOST_ELEMENTS
    stack = [value]
    while stack:
        thing = stack.pop()
        left -= 1
        if left < 0:
            return False
        if type(thing) is dict:
            stack.extend(thing.keys())
            stack.extend(thing.values())
        elif type(thing) in (list, tuple, set, frozenset):
            stack.extend(thing)
        elif isinstance(thing, type):
            if not _is_findable(thing):
                return False
        elif not isinstance(thing, _SCALARS + _REFERENCES):
            return False
    return True


def _is_findable(kind: type) -> bool:
    """Whether its name leads to it; a class that was made on the fly, as ctypes makes them, can be of any kind."""
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is kind


def _is_user_module(module: types.ModuleType, libraries: tuple[str, ...]) -> bool:
    path = getattr(module, "__file__", None)
    return path is not None and not path.startswith(libraries)


def _library_directories() -> tuple[str, ...]:
    ours = str(Path(__file__).resolve().parents[2])
    paths = {
        value for key, value in sysconfig.get_paths().items() if key in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    paths.update(entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages")))
    return (ours, *sorted(paths))


def _preparation() -> dict[str, Any]:
    preparation = spawn.get_preparation_data("antifreeze stem")
    preparation["authkey"] = bytes(preparation["authkey"])  # else it refuses to be pickled
    preparation.pop("init_main_from_name", None)  # the main module is imported our way
    preparation.pop("init_main_from_path", None)
    return preparation


def _limits() -> dict[int, tuple[int, int]]:
    import resource  # noqa: PLC0415 - not on every system, and needed on Linux only

    kinds = (getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
    return {kind: resource.getrlimit(kind) for kind in kinds}


def _apply_limits(limits: dict[int, tuple[int, int]]) -> None:
    import resource  # noqa: PLC0415 - not on every system, and needed on Linux only

    for kind, wanted in limits.items():
        if resource.getrlimit(kind) != wanted:
            with contextlib.suppress(OSError, ValueError):  # a limit may be lowered by anybody, raised only by root
                resource.setrlimit(kind, wanted)


def _logging_levels() -> dict[str, int]:
    loggers = {"": logging.root, **logging.root.manager.loggerDict}
    return {
        name: logger.level
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger) and (logger.level or not name)
    }


def _is_plain_filter(entry: Any) -> bool:
    """Filters of user-made categories cannot be told to a process that has not imported them."""
    return getattr(entry[2], "__module__", "") == "builtins"
