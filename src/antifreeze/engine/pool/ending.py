"""The end of the program: whatever iterators are left, all of their workers together get the time that one of them would.

In a child of the trainer, pools are let go of: they are the trainer's.
"""

from __future__ import annotations

import atexit
import time
from typing import Protocol

from antifreeze.engine import forks
from antifreeze.engine.backends import interruptions

# All workers are gone within two seconds, on a busy machine, too: so long they are asked, the rest is for force.
STOP_DEADLINE_S = 1.2


class Stoppable(Protocol):
    """What is to be ended with the program."""

    def ask_to_leave(self) -> None: ...
    def stop(self, *, deadline: float | None = None) -> None: ...
    def abandon(self) -> None: ...


# Held here until they are stopped: the collector may end the sockets of a pool before the iterator that would stop it.
_pools: set[Stoppable] = set()


def hold(pool: Stoppable) -> None:
    """Stop this pool when the program ends, if nobody has before."""
    forks.call_in_children(_forget_in_child)
    _pools.add(pool)
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)  # anew, to come before whatever its stem needs is ended


def let_go(pool: Stoppable) -> None:
    """This pool has been stopped."""
    _pools.discard(pool)


def stop_deadline() -> float:
    """Until when workers that are to leave now may do so by themselves."""
    return time.monotonic() + STOP_DEADLINE_S


def _stop_all() -> None:
    with interruptions.held():
        deadline = stop_deadline()
        for pool in list(_pools):
            pool.ask_to_leave()
        for pool in list(_pools):
            pool.stop(deadline=deadline)


def _forget_in_child() -> None:
    for pool in list(_pools):
        pool.abandon()
