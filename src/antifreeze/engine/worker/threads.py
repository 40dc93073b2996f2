"""Thread pools of native libraries: n workers run at most n × `worker_threads` of them, not n × all processors.

Libraries differ, and so there are three ways:

- Pools of OpenMP and BLAS that are loaded are told (by threadpoolctl).
- Packages that read their number when they are imported are told then; now, if they were imported before.
- All others look into the environment when they first need it, so that says it: to native code only, `os.environ` stays
  the user's.

What always holds: a number that the user has put into the environment stands, in all libraries that listen to it; and
nothing gets more threads than it would have without us. torch itself has one thread in a worker, as torch sees to.

OpenCV is told by the environment alone. Its pool, if the trainer has used it, is lost in a fork, and then OpenCV gets by
without; but it would wait for ever for lost threads that `cv2.setNumThreads` made it end.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from threadpoolctl import LibController, ThreadpoolController

from antifreeze.whenimported import when_imported

_OPENMP = "OMP_NUM_THREADS"
# By threadpoolctl's names; the first variable that is set counts.
_VARIABLES = {
    "openblas": ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", _OPENMP),
    "mkl": ("MKL_NUM_THREADS", _OPENMP),
    "blis": ("BLIS_NUM_THREADS", _OPENMP),
}
# BLAS libraries and Arrow follow OpenMP's if they find none of their own.
_ANNOUNCED = (_OPENMP, "OPENCV_FOR_THREADS_NUM", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS", "ARROW_IO_THREADS")
_SOFT = 1  # omp_pause_soft: what was set stays set


class _Package(NamedTuple):
    """A package with a number of threads of its own."""

    name: str
    variables: tuple[str, ...]
    get: str
    set: str


_PACKAGES = (
    _Package("numexpr", ("NUMEXPR_NUM_THREADS", _OPENMP), "get_num_threads", "set_num_threads"),
    _Package("pyarrow", (_OPENMP,), "cpu_count", "set_cpu_count"),
    _Package("pyarrow", ("ARROW_IO_THREADS",), "io_thread_count", "set_io_thread_count"),
)
# A clean stem loads libraries with one thread each, and has the user's environment put in place later.
_AT_START = dict(os.environ)
_is_capped = False
_to_raise: list[tuple[LibController, int]] = []
"""Pools that shall have more threads in workers than they were loaded with."""


def cap_threads(limit: int | None) -> None:
    """In a stem, before it forks: limit the pools of its workers, of libraries loaded by now and of later ones."""
    global _is_capped
    _is_capped = True
    announce(limit)
    if limit is not None:
        for package in _PACKAGES:
            if asked(package.variables, os.environ) is None:
                when_imported(package.name, functools.partial(_cap_package, package, limit))
    for pool in ThreadpoolController().lib_controllers:
        current = pool.num_threads
        if current is None:  # it cannot be told
            continue
        threads = _threads_of(pool, current, limit)
        if threads < current:
            pool.set_num_threads(threads)
        elif threads > current:
            _to_raise.append((pool, threads))


def settle_threads(limit: int | None) -> None:
    """In a worker, before code of the user's: what starts threads, and so is nothing for a stem."""
    if not _is_capped:  # the stem could not know the limit
        cap_threads(limit)
    for pool, threads in _to_raise:
        pool.set_num_threads(threads)


def announce(limit: int | None) -> None:
    """Tell native libraries that are loaded from now on; None: tell them nothing but what the user does."""
    for name in _ANNOUNCED:
        if name in os.environ:
            continue
        if limit is None:
            os.unsetenv(name)
        else:
            os.putenv(name, str(limit))


def asked(names: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """The number of threads that the environment asks for, by the first of these names that it knows."""
    text = next((environment[name] for name in names if environment.get(name)), "")
    with contextlib.suppress(ValueError):
        return int(text.partition(",")[0])  # OpenMP's may be a list, for pools inside pools
    return None


def threads_of_pool(
    current: int, *, wanted: int | None, wanted_at_start: int | None, limit: int | None, processors: int
) -> int:
    """How many threads a pool shall have that was loaded with `wanted_at_start`, where the user says `wanted`."""
    if wanted is not None:
        return current if wanted == wanted_at_start else wanted
    own = current if wanted_at_start is None else processors
    return own if limit is None else min(own, limit)


def end_openmp_pools() -> None:
    """Before a fork: end the idle threads of GNU OpenMP, which the child would wait for and never find.

    They come back when they are needed again. Only the pool of this thread matters: it is the only one in the child.
    (Other OpenMP libraries look after their forks themselves.)
    """
    for pool in ThreadpoolController().lib_controllers:
        if pool.prefix == "libgomp" and hasattr(pool.dynlib, "omp_pause_resource_all"):
            pool.dynlib.omp_pause_resource_all(_SOFT)


def _threads_of(pool: LibController, current: int, limit: int | None) -> int:
    names = _VARIABLES.get(pool.internal_api, (_OPENMP,))
    return threads_of_pool(
        current,
        wanted=asked(names, os.environ),
        wanted_at_start=asked(names, _AT_START),
        limit=limit,
        processors=len(os.sched_getaffinity(0)),
    )


def _cap_package(package: _Package, limit: int, module: ModuleType) -> None:
    get: Callable[[], int] = getattr(module, package.get)
    if get() > limit:
        getattr(module, package.set)(limit)
