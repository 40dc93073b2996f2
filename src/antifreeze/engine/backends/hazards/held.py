"""Objects that are of no use, or of harm, in a forked process: each with what it is, and what a fork does to it.

They are known by their types, of modules that are loaded anyway, and looked at without running code of the user's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from antifreeze.engine.crossing.reading import attributes_of, is_subclass

_LOST_THREADS = "its threads are not in a forked worker, which would wait for them for ever"


class Held(NamedTuple):
    """What is to be said about a kind of objects."""

    kind: str
    """One of those that the doctor tells apart (`doctor/facts.py`)."""
    what: str
    why: str
    is_live: Callable[[Any], bool]
    """Whether a fork would do this to this one, now."""
    is_certain: bool = False
    """Whether a forked worker that uses it waits for ever."""


def held_by_type(kind: type) -> list[Held]:
    """What a fork may do to objects of this class."""
    return [held for name, held in _HELD.items() if (known := loaded(name)) is not None and is_subclass(kind, known)]


def closed_types() -> list[type]:
    """Types whose objects hold such things as a matter of course: they see to forks themselves, or are judged whole."""
    return [kind for kind in map(loaded, _CLOSED) if kind is not None]


def held_types() -> list[type]:
    """The types of all that is told apart here."""
    return [kind for kind in map(loaded, _HELD) if kind is not None]


def loaded(name: str) -> Any:
    """What a module that is loaded has under a name, `zipfile:ZipFile`; None if there is none."""
    module, _, attribute = name.partition(":")
    return getattr(sys.modules.get(module), attribute, None)


def _always(_: Any) -> bool:
    return True


def _is_open(sock: Any) -> bool:
    return loaded("_socket:socket").fileno(sock) >= 0  # type: ignore[no-any-return]


def _has_lock_table(environment: Any) -> bool:
    try:
        return bool(loaded("lmdb:Environment").flags(environment)["lock"])
    except Exception:  # noqa: BLE001 - it is closed, and whatever LMDB says to that
        return False


def _has_threads(executor: Any) -> bool:
    found = attributes_of(executor)
    return bool(found.get("_threads")) and not found.get("_shutdown")


def _has_processes(executor: Any) -> bool:
    return bool(attributes_of(executor).get("_executor_manager_thread"))


def _is_running(pool: Any) -> bool:
    return attributes_of(pool).get("_state") == "RUN"


def _is_not_closed(loop: Any) -> bool:
    return attributes_of(loop).get("_closed") is False


def _runs_beside(thread: Any) -> bool:
    return thread is not threading.current_thread() and any(thread is each for each in threading.enumerate())


def _is_on_gpu(tensor: Any) -> bool:
    torch = sys.modules["torch"]
    if not torch.cuda.is_initialized():
        return False
    with torch._C.DisableTorchFunctionSubclass():
        return bool(torch.Tensor.is_cuda.__get__(tensor))


def _is_locked(lock: Any) -> bool:
    return loaded("_thread:LockType").locked(lock)  # type: ignore[no-any-return]


def _is_anothers(lock: Any) -> bool:
    """In the child of the thread that holds it, an RLock can be taken again and released."""
    kind = loaded("_thread:RLock")
    return kind.__repr__(lock).startswith("<locked") and not kind._is_owned(lock)


_CLOSED = (
    "threading:Thread",
    "multiprocessing.queues:Queue",
    "torch.utils.data.dataloader:_BaseDataLoaderIter",
)
_HELD = {
    "_socket:socket": Held(
        "socket", "an open socket", "forked workers would all speak and listen through it at once", _is_open
    ),
    "lmdb:Environment": Held(
        "lmdb", "an LMDB environment", "its table of readers belongs to the process that opened it", _has_lock_table
    ),
    "asyncio:BaseEventLoop": Held(
        "loop",
        "an event loop",
        "forked workers would take each other's events, and its thread is not in them",
        _is_not_closed,
    ),
    "concurrent.futures.thread:ThreadPoolExecutor": Held(
        "executor", "a thread pool in use", _LOST_THREADS, _has_threads, is_certain=True
    ),
    "concurrent.futures.process:ProcessPoolExecutor": Held(
        "executor", "a process pool in use", _LOST_THREADS, _has_processes, is_certain=True
    ),
    "multiprocessing.pool:Pool": Held("executor", "a running pool", _LOST_THREADS, _is_running, is_certain=True),
    "threading:Thread": Held("thread", "a running thread", "it is not in a forked worker", _runs_beside),
    "_thread:LockType": Held(
        "lock", "a lock that is held now", "in a forked worker nobody would release it", _is_locked
    ),
    "_thread:RLock": Held(
        "lock", "a lock that is held now", "in a forked worker nobody would release it", _is_anothers
    ),
    "torch:Tensor": Held("cuda", "on a GPU", "CUDA refuses to work in a forked process", _is_on_gpu),
    # By its documentation; this one we have not seen.
    "grpc:Channel": Held("native", "a gRPC channel", _LOST_THREADS, _always),
}
