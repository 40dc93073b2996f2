"""Objects that are of no use, or of harm, in a forked process: what each is, what a fork does to it, and what mends that.

They are known by their types, of modules that are loaded anyway, and looked at without running code of the user's.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from antifreeze.engine.crossing.reading import attributes_of, is_a, is_subclass
from antifreeze.engine.worker import mends
from antifreeze.torch_side.frames import BASE_ITERATOR

_LOST_THREADS = "its threads are not in a forked worker, which would wait for them forever"


class Held(NamedTuple):
    """What is to be said about a kind of objects."""

    kind: str
    """One of those that the doctor tells apart (`doctor/facts.py`); of a connection, it tells the socket."""
    what: str
    why: str
    is_live: Callable[[Any], bool]
    """Whether a fork would do this to this one, now."""
    mend: mends.Mend | None = None
    """What makes it usable again in a forked worker; None: nothing does."""
    freezes: bool = False
    """Whether a forked worker that uses it waits forever."""


def held_by_type(kind: type) -> list[Held]:
    """What a fork may do to objects of this class; the first that holds says it all."""
    return [held for name, held in _HELD.items() if (known := loaded(name)) is not None and is_subclass(kind, known)]


def closed_types() -> list[type]:
    """Types whose objects hold such things as a matter of course: they see to forks themselves, or are judged whole."""
    return [kind for kind in map(loaded, _CLOSED) if kind is not None]


def mended_types() -> list[type]:
    """The types whose objects workers mend: what is in them is of no interest."""
    return [kind for name, held in _HELD.items() if held.mend and (kind := loaded(name)) is not None]


def held_types() -> list[type]:
    """The types of all that is told apart here."""
    return [kind for kind in map(loaded, _HELD) if kind is not None]


def is_shared_queue(thing: Any) -> bool:
    """Whether it is a queue, or the end of a pipe, that several processes take things out of."""
    if any((known := loaded(name)) is not None and is_a(thing, known) for name in _QUEUES):
        return True
    proxy = loaded("multiprocessing.managers:BaseProxy")
    return proxy is not None and is_a(thing, proxy) and "Queue" in str(attributes_of(thing)["_token"].typeid)


def is_shared_pipe(thing: Any) -> bool:
    """Whether it is an open socket, or an end of a pipe that is read from: forked workers all read through it."""
    if (known := loaded("_socket:socket")) is not None and is_a(thing, known):
        return _is_open(thing)
    for kind in map(loaded, _READERS):
        if is_a(thing, kind):
            with contextlib.suppress(Exception):  # it is closed, or stands on an object of the user's
                mode = os.fstat(kind.fileno(thing)).st_mode
                return bool(kind.readable(thing)) and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
    return False


def loaded(name: str) -> Any:
    """What a module that is loaded has under a name, `zipfile:ZipFile`; None if there is none."""
    module, _, attribute = name.partition(":")
    return getattr(sys.modules.get(module), attribute, None)


def _always(_: Any) -> bool:
    return True


def _is_connected(connection: Any) -> bool:
    sock = attributes_of(connection).get("sock")
    return isinstance(sock, loaded("_socket:socket")) and _is_open(sock)


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


def _is_not_shut_down(executor: Any) -> bool:
    # Its queues are there before its processes: workers would take each other's results.
    return attributes_of(executor).get("_shutdown_thread") is False


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
    from antifreeze.torch_side.tensors import as_plain_tensors  # noqa: PLC0415 - torch is there by now

    with as_plain_tensors():
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
    BASE_ITERATOR,
)
_QUEUES = (
    "multiprocessing.queues:Queue",
    "multiprocessing.queues:SimpleQueue",
    "multiprocessing.connection:Connection",
)
_READERS = ("_io:FileIO", "_io:BufferedReader", "_io:TextIOWrapper")
_HELD = {
    "http.client:HTTPConnection": Held(
        "connection",
        "a connection",
        "forked workers would read each other's answers",
        _is_connected,
        mend=mends.disconnect,
    ),
    "_socket:socket": Held(
        "socket", "an open socket", "forked workers would all speak and listen through it at once", _is_open
    ),
    "lmdb:Environment": Held(
        "lmdb",
        "an LMDB environment",
        "its table of readers belongs to the process that opened it",
        _has_lock_table,
        mend=mends.reopen_lmdb,
    ),
    "asyncio:BaseEventLoop": Held(
        "loop",
        "an event loop",
        "forked workers would take each other's events, and its thread is not in them",
        _is_not_closed,
        freezes=True,
    ),
    "concurrent.futures.thread:ThreadPoolExecutor": Held(
        "executor", "a thread pool in use", _LOST_THREADS, _has_threads, mend=mends.reset_threads
    ),
    "concurrent.futures.process:ProcessPoolExecutor": Held(
        "executor", "a process pool", _LOST_THREADS, _is_not_shut_down, mend=mends.reset_processes
    ),
    "multiprocessing.pool:Pool": Held(
        "executor", "a running pool", _LOST_THREADS, _is_running, mend=mends.restart_when_used
    ),
    "threading:Thread": Held("thread", "a running thread", "it is not in a forked worker", _runs_beside, freezes=True),
    "_thread:LockType": Held(
        "lock",
        "a lock that is held now",
        "nobody would release it in a forked worker",
        _is_locked,
        mend=mends.unlock,
        freezes=True,
    ),
    "_thread:RLock": Held(
        "lock",
        "a lock that is held now",
        "nobody would release it in a forked worker",
        _is_anothers,
        mend=mends.unlock,
        freezes=True,
    ),
    "torch:Tensor": Held("cuda", "on a GPU", "CUDA refuses to work in a forked process", _is_on_gpu),
    # By its documentation; this one we have not seen.
    "grpc:Channel": Held("native", "a gRPC channel", _LOST_THREADS, _always, freezes=True),
}
