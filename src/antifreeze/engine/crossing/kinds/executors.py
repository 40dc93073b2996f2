"""Executors and pools of threads: the worker gets one of its own, with the same settings and nothing to do.

(Multiprocessing's pools of processes do not cross: each worker would start as many processes at once, used or not.)
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, Reduced, fresh, with_attributes

# How threads and processes are prepared: the first two up to Python 3.13, the others since.
_PREPARATION = ("_initializer", "_initargs", "_create_worker_context", "_resolve_work_item_task")


def plan_threads(handle: ThreadPoolExecutor, luggage: Luggage) -> Reduced:
    """Without its threads, which start when they are needed."""
    settings = {"max_workers": handle._max_workers, "thread_name_prefix": handle._thread_name_prefix}
    arguments = type(handle), settings, _preparation(handle), handle._shutdown
    return with_attributes(handle, make_threads, *arguments, but=frozenset(vars(ThreadPoolExecutor(1))))


def make_threads(
    cls: type[ThreadPoolExecutor], settings: dict[str, Any], preparation: dict[str, Any], is_shut_down: bool
) -> ThreadPoolExecutor:
    """The other side of `plan_threads`."""
    handle: ThreadPoolExecutor = fresh(cls)
    ThreadPoolExecutor.__init__(handle, **settings)
    vars(handle).update(preparation)
    if is_shut_down:
        handle.shutdown()
    return handle


def plan_processes(handle: Any, luggage: Luggage) -> Any:
    """Without its processes, which start when they are needed; a subclass has to say itself how it is made."""
    settings = {"max_workers": handle._max_workers, "max_tasks_per_child": handle._max_tasks_per_child}
    method = handle._mp_context.get_start_method()
    reduced = make_processes, (settings, method, _preparation(handle), handle._shutdown_thread)
    return reduced if type(handle) is ProcessPoolExecutor else NotImplemented


def make_processes(
    settings: dict[str, Any], method: str, preparation: dict[str, Any], is_shut_down: bool
) -> ProcessPoolExecutor:
    """The other side of `plan_processes`."""
    handle = ProcessPoolExecutor(mp_context=multiprocessing.get_context(method), **settings)
    vars(handle).update(preparation)
    if is_shut_down:
        handle.shutdown()
    return handle


def shut_down(handle: ProcessPoolExecutor) -> None:
    """Without waiting: what is left of its processes ends with the worker's group."""
    handle.shutdown(wait=False, cancel_futures=True)


def plan_thread_pool(handle: Any, luggage: Luggage) -> Reduced:
    """As many threads, which run from the start."""
    return ThreadPool, (handle._processes, handle._initializer, handle._initargs)


def _preparation(handle: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(handle).items() if name in _PREPARATION}


KINDS: dict[type, Kind] = {
    ThreadPoolExecutor: Kind(plan_threads),
    ProcessPoolExecutor: Kind(plan_processes, close=shut_down),  # its queues are there from the start
    ThreadPool: Kind(plan_thread_pool, close=ThreadPool.terminate),
}
