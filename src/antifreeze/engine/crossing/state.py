"""Program state for a fresh process: captured in the trainer, put in place in a clean stem.

The surroundings (environment, directories, paths, limits) are what every process that the trainer starts would have. The
rest is for a clean stem that stands in the place of a fork, whose workers would have inherited it: settings of torch,
`warnings` and `logging`, and, with the dataset, the globals and class attributes of user modules that differ from a fresh
import. Those that are simple are copied; others that are not what a fresh import makes are named, so that the user is told.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import functools
import logging
import multiprocessing
import os
import re
import sys
import sysconfig
import types
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path, PurePath
from typing import Any

import torch

from antifreeze import machine
from antifreeze.codes import named
from antifreeze.engine.crossing.by_value import MAIN, find_by_name
from antifreeze.engine.crossing.main_module import MainModule, import_main
from antifreeze.whenimported import when_imported

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_SCALARS = (*_PLAIN, PurePath, enum.Enum, re.Pattern, range, torch.dtype, torch.device)
_REFERENCES = (type, types.FunctionType)
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_WRITERS = ("TextIOWrapper", "BufferedWriter", "FileIO")
# A registry or a configuration is small; what is larger is data, and belongs to the dataset.
MOST_ELEMENTS = 10_000

# Switches of libraries that programs set at run time and that change what samples look like.
LIBRARY_SWITCHES = {
    "PIL.ImageFile": ("LOAD_TRUNCATED_IMAGES", "MAXBLOCK"),
    "PIL.Image": ("MAX_IMAGE_PIXELS",),
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process that the trainer starts would have, before anything of the user's is imported."""

    environ: dict[str, str]
    umask: int | None
    limits: dict[int, tuple[int, int]]
    affinity: frozenset[int]
    preparation: dict[str, Any]
    """For `multiprocessing.spawn.prepare`: directories, `sys.path`, `sys.argv`, start method, authentication key."""
    main: MainModule


@dataclass(frozen=True, slots=True)
class Settings:
    """What a process that is forked from the trainer would have besides."""

    warning_filters: list[Any]
    """As in `warnings.filters`, but categories are (module, name)."""
    logging_levels: dict[str, int]
    logging_disabled: int
    default_dtype: torch.dtype
    deterministic: tuple[bool, bool]
    """Whether only deterministic algorithms are wanted, and whether others only warn."""
    matmul_precision: str
    grad_enabled: bool
    sharing_strategy: str
    numpy_errors: dict[str, Any]
    """What numpy does about overflow and the like; empty if the program does not use it."""
    recursion_limit: int


def capture_surroundings(main: MainModule) -> Surroundings:
    """The trainer's, as they are now."""
    return Surroundings(
        environ=dict(os.environ),
        umask=machine.umask(),
        limits=_limits(),
        affinity=frozenset(os.sched_getaffinity(0)),
        preparation=_preparation(),
        main=main,
    )


def capture_settings() -> Settings:
    """The trainer's, as they are now."""
    return Settings(
        warning_filters=[_by_name(entry) for entry in warnings.filters],
        logging_levels=_logging_levels(),
        logging_disabled=logging.root.manager.disable,
        default_dtype=torch.get_default_dtype(),
        deterministic=_deterministic(),
        matmul_precision=torch.get_float32_matmul_precision(),
        grad_enabled=torch.is_grad_enabled(),
        sharing_strategy=torch.multiprocessing.get_sharing_strategy(),
        numpy_errors=sys.modules["numpy"].geterr() if "numpy" in sys.modules else {},
        recursion_limit=sys.getrecursionlimit(),
    )


def settle(wanted: Surroundings) -> None:
    """Make this process's surroundings like the trainer's; the main module is not imported yet."""
    os.environ.clear()
    os.environ.update(wanted.environ)
    if wanted.umask is not None:
        os.umask(wanted.umask)
    _apply_limits(wanted.limits)
    with contextlib.suppress(OSError):  # the trainer's processors may have been taken away since
        os.sched_setaffinity(0, wanted.affinity)
    spawn.prepare(wanted.preparation)


def import_program(main: MainModule) -> None:
    """Import the main module of the trainer, with the start method open: a script may set it at its top, and only once."""
    method = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(None, force=True)
    try:
        import_main(main)
    finally:
        multiprocessing.set_start_method(method, force=True)


def settle_like_a_fork(wanted: Surroundings, settings: Settings) -> None:
    """Make this process what a fork of the trainer would be, as far as that goes without the dataset."""
    settle(wanted)
    torch.set_default_dtype(settings.default_dtype)
    if settings.deterministic != _deterministic():  # the call alone takes seconds of imports
        torch.use_deterministic_algorithms(settings.deterministic[0], warn_only=settings.deterministic[1])
    torch.set_float32_matmul_precision(settings.matmul_precision)
    torch.set_grad_enabled(settings.grad_enabled)
    torch.multiprocessing.set_sharing_strategy(settings.sharing_strategy)
    sys.setrecursionlimit(settings.recursion_limit)
    import_program(wanted.main)
    # After the import of the main module, which may set its own: the trainer's are what counts.
    _filter_warnings(settings.warning_filters)
    when_imported("numpy", lambda numpy: numpy.seterr(**settings.numpy_errors))
    logging.disable(settings.logging_disabled)
    for name, level in settings.logging_levels.items():
        logging.getLogger(name).setLevel(level)


@dataclass(frozen=True, slots=True)
class ModuleState:
    """Globals and class attributes of one module, as they are in the trainer."""

    simple: dict[str, Any]
    others: dict[str, Other]
    """What the globals that are not simple look like."""
    class_attributes: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Other:
    """What can be told of a global that is not copied."""

    kind: str
    """The name of its type."""
    plain: dict[str, Any]
    """Numbers, texts and the like among its attributes, if its class is the user's."""
    has_code: bool = False
    """Whether it is only not copied for the functions in it, which cannot cross."""


def capture_modules(*, by_name_only: bool = False) -> dict[str, ModuleState]:
    """The state of all user modules of the trainer, and the switches of libraries.

    `by_name_only` leaves out functions that would have to travel by value.
    """
    states = {}
    libraries = library_directories()
    for name, module in list(sys.modules.items()):
        if name == "__mp_main__" or not isinstance(module, types.ModuleType):
            continue
        if name in LIBRARY_SWITCHES:
            simple = {switch: getattr(module, switch) for switch in LIBRARY_SWITCHES[name] if hasattr(module, switch)}
            states[name] = ModuleState(simple, {}, {})
        elif is_user_module(module, libraries):
            states[name] = _module_state(name, module, by_name_only=by_name_only)
    return states


def settle_modules(states: dict[str, ModuleState]) -> list[str]:
    """Put module state in place, now or when a module is imported later; returns the names of what still differs."""
    differing: list[str] = []
    for name, state in states.items():

        def apply(module: types.ModuleType, name: str = name, state: ModuleState = state) -> None:
            differing.extend(_apply(name, module, state))

        when_imported(name, apply)
    return differing


def tell(differing: Sequence[str]) -> str:
    """The warning that names what workers of a clean stem see otherwise than the program does."""
    keep = "workers of a clean stem start from a fresh import; multiprocessing_context='fork' keeps it"
    return f"{named('AF302')}: {'; '.join(differing)} ({keep})"


def _module_state(name: str, module: types.ModuleType, *, by_name_only: bool) -> ModuleState:
    simple, others, classes = {}, {}, {}
    for key, value in list(vars(module).items()):
        if key.startswith("__") or isinstance(value, types.ModuleType):
            continue
        if isinstance(value, type):
            if value.__module__ == name and value.__qualname__ == key:
                classes[key] = {
                    attribute: held
                    for attribute, held in list(vars(value).items())
                    if not attribute.startswith("__")
                    and not isinstance(held, _REFERENCES)
                    and is_simple(held, by_name_only=by_name_only)
                }
        elif isinstance(value, _REFERENCES):
            continue
        elif is_simple(value, by_name_only=by_name_only):
            simple[key] = value
        else:
            others[key] = Other(
                type(value).__qualname__, _plain_attributes(value), has_code=by_name_only and is_simple(value)
            )
    return ModuleState(simple, others, {key: held for key, held in classes.items() if held})


def _apply(name: str, module: types.ModuleType, state: ModuleState) -> Iterator[str]:
    for key, value in state.simple.items():
        _put(module, key, value)
    for class_name, attributes in state.class_attributes.items():
        owner = getattr(module, class_name, None)
        if isinstance(owner, type):
            for key, value in attributes.items():
                _put(owner, key, value)
    for key, other in state.others.items():
        # A name that a fresh import does not make is a variable of the main guard or of an interactive session.
        if key in vars(module) and (difference := _difference(other, vars(module)[key])):
            yield f"{name}.{key} {difference}"


def _difference(other: Other, here: Any) -> str:
    kind = type(here).__qualname__
    if here is None and other.kind in _WRITERS:  # the script opens its log under its main guard, or in the main process
        return ""
    if kind != other.kind:
        return f"is a {other.kind} in the program and a {kind} in its workers"
    if other.has_code:
        return "holds functions that cannot be sent to its workers"
    plain = _plain_attributes(here)
    changed = sorted(
        name for name in other.plain.keys() | plain.keys() if _repr(other.plain, name) != _repr(plain, name)
    )
    return f"has another {', '.join(changed)} in its workers" if changed else ""


def _repr(attributes: dict[str, Any], name: str) -> str:
    return repr(attributes[name]) if name in attributes else ""


def _plain_attributes(thing: Any) -> dict[str, Any]:
    """Attributes that can be compared; a class of a library may have any, and knows best what they mean."""
    if not is_user_module(sys.modules.get(type(thing).__module__), library_directories()):
        return {}
    return {name: held for name, held in getattr(thing, "__dict__", {}).items() if type(held) in _PLAIN}


def _put(owner: Any, key: str, value: Any) -> None:
    current = vars(owner).get(key, _MISSING)
    if current is value:  # it came with a function that uses it
        return
    # In place where that can be: other modules may have imported the very object.
    if type(current) is not type(value) or not _become(current, value):
        setattr(owner, key, value)


_MISSING = object()


def _become(current: Any, value: Any) -> bool:
    """Make an object that can change equal to another of its type; whether it can."""
    if isinstance(value, dict):
        kind = OrderedDict if isinstance(value, OrderedDict) else dict  # not a user's own, whose methods may do more
        kind.clear(current)
        kind.update(current, value)
    elif isinstance(value, set):
        current.clear()
        current.update(value)
    elif isinstance(value, list):
        current[:] = value
    elif not (isinstance(value, _NAMESPACES) or _is_record(value)):
        return False
    if hasattr(value, "__dict__"):
        vars(current).clear()
        vars(current).update(vars(value))
    return True


def is_simple(value: Any, *, by_name_only: bool = False) -> bool:
    """Whether a value is plain data (or references to code) all the way down, and not too much of it."""
    left = MOST_ELEMENTS
    stack = [value]
    while stack:
        thing = stack.pop()
        left -= 1
        if left < 0:
            return False
        if isinstance(thing, dict) and _is_findable(type(thing)):
            stack.extend((*thing.keys(), *thing.values(), *getattr(thing, "__dict__", {}).values()))
        elif type(thing) in (list, tuple, set, frozenset):
            stack.extend(thing)
        elif type(thing) in _NAMESPACES or _is_record(thing):
            stack.extend(vars(thing).values())
        elif isinstance(thing, type):
            # A class that was made on the fly, as ctypes makes them, can be of any kind.
            if not _is_findable(thing):
                return False
        elif isinstance(thing, types.FunctionType):
            if by_name_only and (thing.__module__ in MAIN or not _is_findable(thing)):
                return False
        elif not isinstance(thing, _SCALARS) and not _is_small_array(thing):
            return False
    return True


def _is_record(thing: Any) -> bool:
    """Whether this is an object of a dataclass, with attributes and nothing else."""
    kind = type(thing)
    return dataclasses.is_dataclass(kind) and kind.__reduce_ex__ is object.__reduce_ex__ and hasattr(thing, "__dict__")


def _is_small_array(thing: Any) -> bool:
    if type(thing) is torch.Tensor:
        is_plain = thing.device.type == "cpu" and thing.layout is torch.strided and not thing.requires_grad
        return is_plain and thing.numel() <= MOST_ELEMENTS
    is_numpys = type(thing).__module__ == "numpy" and hasattr(thing, "dtype")
    return is_numpys and not thing.dtype.hasobject and thing.size <= MOST_ELEMENTS


def _is_findable(code: Any) -> bool:
    """Whether the name of a class or function leads to it."""
    return find_by_name(code.__module__, code.__qualname__) is code


def is_user_module(module: types.ModuleType | None, libraries: tuple[str, ...]) -> bool:
    """Whether this is a module of the user's, and not of Python, of an installed package or of antifreeze."""
    path = getattr(module, "__file__", None)
    return path is not None and not path.startswith(libraries)


def library_directories() -> tuple[str, ...]:
    """Where code lies that is not the user's: ours, Python's, and what is installed."""
    installed = (each for each in sys.path if type(each) is str and each.endswith(("site-packages", "dist-packages")))
    return tuple(sorted({*_own_directories(), *installed}))


@functools.cache
def _own_directories() -> tuple[str, ...]:
    ours = str(Path(__file__).resolve().parents[2])
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (ours, *(value for key, value in sysconfig.get_paths().items() if key in names))


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


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _by_name(entry: Any) -> tuple[Any, ...]:
    """A warning filter, with the name of its category: the class may be of a module that is not imported elsewhere yet."""
    action, message, category, module, line = entry
    return action, message, (category.__module__, category.__qualname__), module, line


def _filter_warnings(wanted: list[Any]) -> None:
    """Put these filters in the place of our own; those of a category that is not known yet, when its module comes."""
    warnings.resetwarnings()

    def put_known(_: object = None) -> None:
        known = [(*entry[:2], find_by_name(*entry[2]), *entry[3:]) for entry in wanted]
        ours = [entry for entry in known if entry[2] is not None]
        others = [entry for entry in warnings.filters if entry not in ours]
        warnings.filters[:] = [*others, *ours]  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]

    put_known()
    for module in {entry[2][0] for entry in wanted if entry[2][0] not in sys.modules}:
        when_imported(module, put_known)
