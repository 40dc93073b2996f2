"""Threads and thread pools of the trainer: Python's own, and those of native libraries, which a fork does not copy."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from antifreeze import machine
from antifreeze.doctor.facts import NativePool
from antifreeze.engine.backends.hazards.libraries import deadly_libraries
from antifreeze.engine.crossing.reading import attributes_of

_OURS = "antifreeze"
# Distributions whose packages are called otherwise: what a wheel brings along lies in `scikit_learn.libs/`.
_PACKAGES = {
    "scikit_learn": "sklearn",
    "opencv_python": "cv2",
    "opencv_python_headless": "cv2",
    "opencv_contrib_python": "cv2",
    "pillow": "PIL",
}
_LOST = "its OpenMP threads have been started in the trainer; a forked worker that uses it waits for them for ever"


def other_threads() -> tuple[str, ...]:
    """The names of Python's threads beside the main one, but not of ours."""
    names = (
        str(attributes_of(thread).get("_name", "?"))
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
    )
    return tuple(name for name in names if not name.startswith(_OURS))


def native_pools() -> tuple[NativePool, ...]:
    """Of libraries that are loaded."""
    return (*_listed_pools(), *_deadly_pools(), *_opencv())


def _listed_pools() -> Iterator[NativePool]:
    waited_in = [os.path.realpath(path) for path in machine.files_waited_in()]
    is_alone = len(machine.thread_names()) <= threading.active_count()
    for pool in _controllers():
        path = os.path.realpath(pool.filepath)
        waiting = waited_in.count(path)
        is_used = True if waiting else False if is_alone else None
        package = package_of_file(path)
        # torch has its own OpenMP use one thread in workers, and other runtimes than GNU's see to forks themselves.
        is_lost = is_used is True and pool.prefix == "libgomp" and package != "torch"
        yield NativePool(
            library=package,
            kind=pool.internal_api,
            threads=pool.num_threads or 0,
            is_used=is_used,
            why=_LOST if is_lost else "",
        )


def _controllers() -> list[Any]:
    """threadpoolctl's; its import sets a variable that keeps Intel's OpenMP from refusing a second one of its kind."""
    variable = "KMP_DUPLICATE_LIB_OK"
    before = os.environ.get(variable)
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - see above

    if before is None:
        os.environ.pop(variable, None)
    return list(ThreadpoolController().lib_controllers)


def _deadly_pools() -> Iterator[NativePool]:
    for library in deadly_libraries():
        started = [name for name in machine.thread_names() if name.startswith(library.package)]
        asked = os.environ.get("RAYON_NUM_THREADS", "")
        threads = len(started) or (int(asked) if asked.isdigit() else len(os.sched_getaffinity(0)))
        is_used = True if started else None
        yield NativePool(library=library.package, kind="rayon", threads=threads, is_used=is_used, why=library.why)


def _opencv() -> Iterator[NativePool]:
    cv2 = sys.modules.get("cv2")
    if cv2 is not None and hasattr(cv2, "getNumThreads"):
        yield NativePool(library="cv2", kind="opencv", threads=cv2.getNumThreads())


def package_of_file(path: str) -> str:
    """The package that a library belongs to, by where it lies; its own name if it is the system's."""
    parts = PurePath(path).parts
    for above in ("site-packages", "dist-packages"):
        if above in parts[:-1]:
            first = parts[parts.index(above) + 1].removesuffix(".libs")
            return _PACKAGES.get(re.sub(r"[-.]+", "_", first).lower(), first)
    return PurePath(path).name
