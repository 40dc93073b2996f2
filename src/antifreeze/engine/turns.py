"""One thread at a time uses an iterator and its pool: the lock for that.

A lock that its thread may take again, because a signal handler or the collector can call us while we are at work. In a
child of the trainer, locks that other threads held at the fork are free: those threads are not there to release them.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from antifreeze.engine import forks

Turn = Any
"""An `RLock`, whose type has no public name."""

_turns: weakref.WeakSet[Turn] = weakref.WeakSet()


def new_turn() -> Turn:
    """A lock that no thread holds."""
    turn = threading.RLock()
    free_in_children(turn)
    return turn


def free_in_children(turn: Turn) -> None:
    """Have this lock be free in children, unless the thread that forks holds it."""
    forks.call_in_children(_free_in_child)
    _turns.add(turn)


def _free_in_child() -> None:
    for turn in list(_turns):
        if not turn._is_owned():  # else the thread that forked goes on in the child, and releases it
            turn._at_fork_reinit()
