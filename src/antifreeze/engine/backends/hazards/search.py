"""Looks for what does not survive a fork; once per iterator, bounded in time, before anything is forked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from antifreeze.engine.backends.choice import Hazard
from antifreeze.engine.backends.hazards.held import Held, closed_types, held_by_type
from antifreeze.engine.backends.hazards.libraries import deadly_libraries
from antifreeze.engine.crossing.reading import package_of
from antifreeze.engine.crossing.walk import walk
from antifreeze.resources import PerWorker


def find_hazard(roots: Mapping[str, Any]) -> Hazard | None:
    """The nearest thing within reach of these (dataset, collate_fn …) that a fork breaks; None: there is none in sight."""
    libraries = {library.package: library.why for library in deadly_libraries()}
    by_type: dict[int, tuple[type, list[Held]]] = {}
    # What `per_worker` has opened here is opened anew in each worker.
    for path, thing in walk(roots, closed=(*closed_types(), PerWorker)):
        kind = type(thing)
        if id(kind) not in by_type:
            by_type[id(kind)] = kind, held_by_type(kind)
        for held in by_type[id(kind)][1]:
            if held.is_live(thing):
                return Hazard(path, held.what, held.why, is_certain=held.is_certain, is_thread=held.kind == "thread")
        if libraries and (package := package_of(thing)) in libraries:
            return Hazard(path, f"part of {package}", libraries[package])
    return None


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
