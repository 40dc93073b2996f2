"""What every process that the trainer starts would have, before anything of the user's is imported.

It is captured in the trainer, and put in place in a clean stem.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import sys
import sysconfig
import types
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import Any

from antifreeze import machine
from antifreeze.engine.crossing.main_module import MainModule, import_main

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_CONTAINERS = (list, tuple, set, frozenset, dict)
# What is larger is data.
MOST_ELEMENTS = 10_000


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


def outline(held: Any) -> str:
    """What can be compared between processes; nothing of what is no plain data and holds none."""
    if type(held) in _PLAIN:
        return repr(held)
    if type(held) not in _CONTAINERS:
        return ""
    elements: list[Any] = []
    if len(held) <= MOST_ELEMENTS:
        elements = [*held, *held.values()] if type(held) is dict else list(held)
    return f"{type(held).__name__} of {len(held)}: {[each for each in elements if type(each) in _PLAIN]}"


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
    # Workers say that their parent is called like this.
    preparation = spawn.get_preparation_data(multiprocessing.current_process().name)
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
