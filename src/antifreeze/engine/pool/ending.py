"""The end of the program: whatever iterators are left, all of their workers together get the time that one of them would.

In a child of the trainer, pools are let go of: they are the trainer's.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from antifreeze.engine import forks
from antifreeze.engine.arena import segment
from antifreeze.engine.backends import interruptions

# All workers are gone within two seconds, on a busy machine, too: so long they are asked, the rest is for force.
STOP_DEADLINE_S = 1.2
SHUT_DOWN = "the workers of this iterator have been shut down. iter(loader) starts others"


class Stoppable(Protocol):
    """What is to be ended with the program."""

    def ask_to_stop(self) -> None: ...
    def stop(self, *, deadline: float | None = None) -> None: ...
    def abandon(self) -> None: ...


# Held here until they are stopped: the collector may end the sockets of a pool before the iterator that would stop it.
_pools: set[Stoppable] = set()
_is_at_exit = False


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


def end_thread_if_the_program_ends() -> None:
    """End a daemon thread without a word once the program ends: an error raised there would be printed, and help nobody.

    It must not sleep instead, until Python ends it: the program may wait for it, in an `atexit` function of its own.
    """
    if _is_at_exit and threading.current_thread().daemon:
        raise SystemExit


def _stop_all() -> None:
    global _is_at_exit
    _is_at_exit = True
    segment.keep_all()
    with interruptions.held():
        deadline = stop_deadline()
        pools = list(_pools)
        each: list[Callable[[], None]] = [pool.ask_to_stop for pool in pools]
        _do_all(each + [partial(pool.stop, deadline=deadline) for pool in pools])


def _do_all(actions: list[Callable[[], None]]) -> None:
    """Do each of these, also after one of them has raised; the first error is raised in the end."""
    errors = []
    for action in actions:
        try:
            action()
        except Exception as error:  # whatever it is, the others are to be stopped as well
            errors.append(error)
    if errors:
        raise errors[0]


def _forget_in_child() -> None:
    global _is_at_exit
    _is_at_exit = False
    for pool in list(_pools):
        pool.abandon()
