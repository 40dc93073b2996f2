"""What `multiprocessing` sends to a process that it spawns: locks, queues, values, connections, sockets.

They ask whether a process is being spawned, and give that process their descriptors. Here it is a crossing that takes them.
So it does with the process that looks after named resources (shared memory, semaphores): a worker that had one of its own
would take with it, at its end, the shared memory of the program.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import context, resource_tracker
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


def tracker_fd() -> int | None:
    """The descriptor, not ours to close, that leads to the program's resource tracker; None if it has none.

    It is started if need be, as multiprocessing does when it spawns a process.
    """
    with contextlib.suppress(OSError):  # none can be started, or the program has closed all files: workers do without
        resource_tracker.ensure_running()
        fd: int | None = _tracker()._fd
        if fd is not None:
            os.fstat(fd)
        return fd
    return None


def use_tracker(fd: int) -> None:
    """On the other side: this process and those that are forked from it tell that tracker of what they use."""
    if _tracker()._fd is None:
        _tracker()._fd = fd
    else:
        os.close(fd)


def _tracker() -> Any:
    return resource_tracker._resource_tracker
