"""All that a worker's code can reach: dataset, collate function and worker_init_fn, and what they hold, once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from antifreeze.doctor.facts import Place
from antifreeze.engine.backends.hazards.held import closed_types
from antifreeze.engine.crossing.reading import is_a, module_of
from antifreeze.engine.crossing.walk import walk
from antifreeze.probes.objects.origins import WalkedPaths, file_of_module, is_of_the_user
from antifreeze.resources import PerWorker

# The lock of one of multiprocessing's values is taken by the user.
_AS_THE_USERS = ("__main__", "multiprocessing.sharedctypes")


class Reach:
    """The objects, the nearest first, each with the path to it."""

    def __init__(self, roots: Mapping[str, Any], *, patience_s: float) -> None:
        began = time.monotonic()
        self._found: list[tuple[str, Any]] = []
        self._paths = WalkedPaths()
        # What `per_worker` has opened here is opened anew in each worker.
        for path, thing in walk(roots, closed=(*closed_types(), PerWorker), patience_s=patience_s):
            self._found.append((path, thing))
            self._paths.add(path, thing)
        self.is_whole = time.monotonic() - began < patience_s

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._found)

    def place(self, path: str) -> Place | None:
        """The line of the user's that put it there."""
        return self._paths.place(path)

    def is_held_by_the_user(self, path: str) -> bool:
        """Whether an object of the user's own, or one of the user's modules, holds it; not an object of a library."""
        owner = self._paths.owner(path)
        if owner is None:
            return True
        module = module_of(owner)
        return module in _AS_THE_USERS or is_a(owner, dict) or is_of_the_user(file_of_module(module))
