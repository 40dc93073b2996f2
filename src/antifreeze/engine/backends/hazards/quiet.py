"""Locks that are held when workers are to be forked: what such a lock guards may be half changed.

So the thread that forks takes them first, as `pthread_atfork` would have it, and gives them back behind the fork: whoever
held one has come to the end of what he was at, and workers, who release it, find it whole. A lock that cannot be had stays
held in workers, as with torch: another thread is in the middle of something for longer than we wait.

Whoever has told Python to take such a lock at every fork (`os.register_at_fork`) would wait for this very thread. So what
we hold is given back early if the fork does not come about: then somebody else sees to it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from antifreeze.engine.backends.choice import Hazard

# Nobody notices it where workers are started, and few hold a lock for longer.
PATIENCE_S = 1.0
# For so long the first of them is held at most: while others are waited for, and for the fork, which takes milliseconds.
FORK_S = 3.0
_RLOCK = type(threading.RLock())
# For so long a lock is waited for that has been seen to be held by somebody else for long.
GLANCE_S = 0.05


class Locks(NamedTuple):
    """What has become of the locks that were held."""

    whole: tuple[tuple[Any, Hazard], ...]
    """Nobody is at what they guard: workers may release them."""
    busy: tuple[tuple[Any, Hazard], ...]
    """Still held by somebody."""


@contextlib.contextmanager
def taken(locks: Iterable[tuple[Any, Hazard]]) -> Iterator[Locks]:
    """Hold these locks, which others hold now, as soon as they can be had.

    Where there is no other thread, this one holds them, and is not at what they guard, but here.
    """
    if len(sys._current_frames()) == 1:
        yield Locks(tuple(locks), ())
        return
    deadline = time.monotonic() + PATIENCE_S
    whole, busy = [], []
    with contextlib.ExitStack() as ours, _Given() as given:
        for lock, hazard in locks:
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                if isinstance(lock, _RLOCK):  # which lets this thread pass, and no other thread release it
                    ours.callback(lock.release)
                else:
                    given.add(lock)
                whole.append((lock, hazard))
            else:
                busy.append((lock, hazard))
        yield Locks(tuple(whole), tuple(busy))


class _Given:
    """Locks that this thread has for the time of a fork; given back at the end, or when that has taken too long."""

    def __init__(self) -> None:
        self._locks: list[Any] = []
        self._timer: threading.Timer | None = None

    def __enter__(self) -> _Given:
        return self

    def add(self, lock: Any) -> None:
        self._locks.append(lock)
        if self._timer is None:
            self._timer = threading.Timer(FORK_S, self._give_back)
            self._timer.daemon = True
            self._timer.start()

    def _give_back(self) -> None:
        while self._locks:  # each is popped once, by whichever thread; and somebody else may have released it
            with contextlib.suppress(IndexError, RuntimeError):
                self._locks.pop().release()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._give_back()


def can_be_taken(locks: Iterable[Any]) -> bool:
    """Whether this thread can have each of these locks now."""
    for lock in locks:
        if not lock.acquire(timeout=GLANCE_S):
            return False
        lock.release()
    return True
