"""What `multiprocessing` sends to a process that it spawns: locks, queues, values, connections, sockets.

They ask whether a process is being spawned, and give that process their descriptors. Here it is a crossing that takes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any

from antifreeze.engine.crossing.kinds.base import Luggage, PassedFile

# What they say if they were made to be inherited by a fork: multiprocessing's own words.
_ONLY_BY_FORK = ("through inheritance", "created in a fork context", "forking was enabled when it was created")


class _Spawned:
    """What they take for the process that is being spawned."""

    DupFd = PassedFile

    def __init__(self, luggage: Luggage) -> None:
        self._luggage = luggage

    def duplicate_for_child(self, fd: int) -> int:
        """The number under which the other side finds this descriptor."""
        self._luggage.descriptors.append(os.dup(fd))
        return len(self._luggage.descriptors) - 1


@contextmanager
def spawning(luggage: Luggage) -> Iterator[None]:
    """While this lasts, what is pickled in this thread goes to a process that is being spawned."""
    before = context.get_spawning_popen()
    context.set_spawning_popen(_Spawned(luggage))  # type: ignore[arg-type]
    try:
        yield
    finally:
        context.set_spawning_popen(before)


def spawn_reducers() -> dict[type, Callable[[Any], Any]]:
    """How `multiprocessing`, and others that have told it, pickle for such a process; torch's own are not among them."""
    known: dict[type, Callable[[Any], Any]] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    return {kind: reduce for kind, reduce in known.items() if not reduce.__module__.startswith("torch.")}


def is_only_inherited(error: Exception) -> bool:
    """Whether something of `multiprocessing` has refused because only a fork can carry it."""
    return any(words in str(error) for words in _ONLY_BY_FORK)
