"""Looks for what does not survive a fork; once per iterator, bounded in time, before anything is forked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from antifreeze.engine.backends.choice import Hazard
from antifreeze.engine.backends.hazards.held import (
    Held,
    closed_types,
    held_by_type,
    is_shared_pipe,
    is_shared_queue,
    mended_types,
)
from antifreeze.engine.backends.hazards.libraries import deadly_libraries
from antifreeze.engine.crossing.reading import attributes_of, is_a, package_of, some_elements
from antifreeze.engine.crossing.walk import walk
from antifreeze.engine.worker.mends import Broken, Mend, prepare, unlock
from antifreeze.resources import PerWorker


class Found(NamedTuple):
    """What a fork would break, of what is within reach."""

    hazards: tuple[Hazard, ...]
    """What workers cannot mend, the nearest first: one that may freeze them, and one that may not."""
    locks: tuple[tuple[Any, Hazard], ...]
    """What is held now, and guards something that may be half changed."""
    broken: tuple[Broken, ...]
    """What workers mend."""
    mended: tuple[Hazard, ...]
    """The same, to be told."""
    has_queue: bool
    """Whether there is a queue that processes share."""
    has_pipe: bool
    """Whether there is a pipe or a socket that is read from."""


def find_hazards(roots: Mapping[str, Any]) -> Found:
    """Look through all that can be reached from these (dataset, collate_fn …)."""
    deadly = deadly_libraries()
    libraries = {library.package: library.why for library in deadly if not library.mend}
    broken = [Broken(None, library.mend) for library in deadly if library.mend]
    mended: list[Hazard] = []
    hazards: dict[bool, Hazard] = {}
    locks: list[tuple[Any, Hazard]] = []
    guards_nothing: set[int] = set()
    has_queue = has_pipe = False
    by_type: dict[int, tuple[type, list[Held]]] = {}
    held_here: list[tuple[Any, Mend, Hazard]] = []
    seen: list[Any] = []
    # What `per_worker` has opened here is opened again in each worker.
    for path, thing in walk(roots, closed=(*closed_types(), *mended_types(), PerWorker)):
        seen.append(thing)
        kind = type(thing)
        if id(kind) not in by_type:
            has_queue = has_queue or is_shared_queue(thing)
            by_type[id(kind)] = kind, held_by_type(kind)
        has_pipe = has_pipe or is_shared_pipe(thing)
        held = next((each for each in by_type[id(kind)][1] if each.is_live(thing)), None)
        if is_a(thing, threading.Condition):  # who waits in it, waits in a lock of his own, which is always held
            guards_nothing.update(map(id, some_elements(attributes_of(thing).get("_waiters", ()))))
        if held is not None:
            hazard = Hazard(path, held.what, held.why, may_freeze=held.freezes)
            if held.mend is unlock and id(thing) not in guards_nothing:
                locks.append((thing, hazard))
            elif held.mend is not None:
                held_here.append((thing, held.mend, hazard))
            else:
                hazards.setdefault(held.freezes, hazard)
        elif libraries and (package := package_of(thing)) in libraries:
            hazards.setdefault(True, Hazard(path, f"part of {package}", libraries[package], may_freeze=True))
    for thing, mend, hazard in held_here:
        prepared = prepare(thing, mend, seen)
        if prepared is not None:
            broken.append(prepared)
            mended.append(hazard)
        else:
            hazards.setdefault(False, hazard)
    return Found(tuple(hazards.values()), tuple(locks), tuple(broken), tuple(mended), has_queue, has_pipe)


class Present(NamedTuple):
    """What there is in this process that may freeze a forked worker."""

    threads: tuple[str, ...]
    """The Python threads beside the one that asks."""
    libraries: tuple[tuple[str, str], ...]
    """Those that no forked worker can use, and why."""
    is_cuda_initialized: bool


def present() -> Present:
    """What is so now; to be named when a worker has frozen, and not before."""
    here = threading.current_thread()
    return Present(
        threads=tuple(thread.name for thread in threading.enumerate() if thread is not here),
        libraries=tuple((library.package, library.why) for library in deadly_libraries()),
        is_cuda_initialized=torch.cuda.is_initialized(),
    )
