"""What threads wait for: fresh in the worker, for nobody there holds it, waits for it, or will ever let go of it."""

from __future__ import annotations

import queue
import threading
from typing import Any

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, OnlyInherited, Reduced, fresh


def plan_lock(handle: Any, luggage: Luggage) -> Reduced:
    """Unlocked."""
    return threading.Lock, ()


def plan_rlock(handle: Any, luggage: Luggage) -> Reduced:
    """Unlocked."""
    return threading.RLock, ()


def plan_condition(handle: threading.Condition, luggage: Luggage) -> Reduced:
    """Around the copy of its lock, which others may use too."""
    return make_condition, (type(handle), handle._lock)  # type: ignore[attr-defined]


def make_condition(cls: type[threading.Condition], lock: Any) -> threading.Condition:
    """The other side of `plan_condition`."""
    handle: threading.Condition = fresh(cls)
    threading.Condition.__init__(handle, lock)
    return handle


def plan_bounded_semaphore(handle: Any, luggage: Luggage) -> Reduced:
    """With all its permits; those of a plain semaphore are as they are, for nobody knows how many there were."""
    return make_bounded_semaphore, (type(handle), handle._initial_value)


def make_bounded_semaphore(cls: type[threading.BoundedSemaphore], permits: int) -> threading.BoundedSemaphore:
    """The other side of `plan_bounded_semaphore`."""
    handle: threading.BoundedSemaphore = fresh(cls)
    threading.BoundedSemaphore.__init__(handle, permits)
    return handle


def plan_barrier(handle: Any, luggage: Luggage) -> Reduced:
    """With nobody at it."""
    return make_barrier, (type(handle), handle._parties, handle._action, handle._timeout)


def make_barrier(cls: type[threading.Barrier], parties: int, action: Any, timeout: float | None) -> threading.Barrier:
    """The other side of `plan_barrier`."""
    handle: threading.Barrier = fresh(cls)
    threading.Barrier.__init__(handle, parties, action, timeout)
    return handle


def plan_local(handle: threading.local, luggage: Luggage) -> Reduced:
    """Empty: what it holds belongs to threads of the trainer."""
    return type(handle), ()


def plan_simple_queue(handle: Any, luggage: Luggage) -> Reduced:
    """Only if it is empty: what is in it can be had only by taking it out."""
    if not handle.empty():
        raise OnlyInherited("a queue.SimpleQueue that is not empty (queue.Queue is sent with all that is in it)")
    return queue.SimpleQueue, ()


KINDS: dict[type, Kind] = {
    type(threading.Lock()): Kind(plan_lock),
    type(threading.RLock()): Kind(plan_rlock),
    threading.Condition: Kind(plan_condition),
    threading.BoundedSemaphore: Kind(plan_bounded_semaphore),
    threading.Barrier: Kind(plan_barrier),
    threading.local: Kind(plan_local),
    queue.SimpleQueue: Kind(plan_simple_queue),
}
