"""What a fork breaks and a worker can mend for itself: it is changed in place, before code of the user's runs.

A forked worker has the program exactly as it is, and what is mended keeps its identity: whoever refers to it refers to what
works. What was under way in it (a request, the tasks of a pool) belongs to the trainer and is not done again.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from antifreeze.engine.crossing.reading import attributes_of, is_a

Mend = Callable[[Any], object]


class Broken(NamedTuple):
    """Something that the fork has broken, and how a worker mends it."""

    thing: Any
    mend: Mend
    put: tuple[Callable[[Any], object], ...] = ()
    """Put another object wherever this one stands; empty: it is mended in place."""


def prepare(thing: Any, mend: Mend, seen: Sequence[Any]) -> Broken | None:
    """In the trainer, before it forks: look where this stands, if another object is to stand there in workers.

    `seen`: what may hold it. (The collector alone does not know: it tracks no dict that holds nothing it could collect.)
    None: it also stands where nothing can be put in its place, so that workers have to do with it as it is.
    """
    if mend is not reopen_lmdb:
        return Broken(thing, mend)
    puts = [put for holder in seen for put in _places(thing, holder)]
    if any(map(_is_opened_by_lmdb, seen)) or any(_has_no_place(thing, holder) for holder in seen):
        return None
    known = set(map(id, seen))
    others = (holder for holder in gc.get_referrers(thing) if id(holder) not in known)
    return Broken(thing, mend, (*puts, *(put for holder in others for put in _places(thing, holder))))


def mend_all(broken: Iterable[Broken]) -> None:
    """In a worker: mend these."""
    for thing, mend, put in broken:
        with contextlib.suppress(Exception):  # then it is as the fork left it, which is how torch's workers have it
            other = mend(thing)
            for each in put:
                with contextlib.suppress(Exception):  # of a class that lets nobody set attributes
                    each(other)


def reset_threads(executor: Any) -> None:
    """Give a thread pool no threads and nothing to do; threads start when they are needed."""
    kind = _executors().ThreadPoolExecutor
    own = kind(executor._max_workers, executor._thread_name_prefix)
    _take_over(executor, own)


def reset_processes(executor: Any) -> None:
    """Give a process pool no processes and nothing to do; processes start when they are needed."""
    own = _executors().ProcessPoolExecutor(
        executor._max_workers, executor._mp_context, max_tasks_per_child=executor._max_tasks_per_child
    )
    _take_over(executor, own)


def restart_when_used(pool: Any) -> None:
    """Give multiprocessing's pool, of processes or threads, workers of its own as soon as it is given work."""
    pool._check_running = partial(_restart, pool)  # which it calls before it takes any


def _restart(pool: Any) -> None:
    from multiprocessing.pool import Pool  # noqa: PLC0415 - it is loaded, because there is one

    del pool._check_running
    Pool.__init__(pool, pool._processes, pool._initializer, pool._initargs, pool._maxtasksperchild, pool._ctx)


def disconnect(connection: Any) -> None:
    """Let go of an HTTP connection's socket, which stays the trainer's: the next request connects again."""
    with contextlib.suppress(OSError):
        connection.sock.close()
    vars(connection).update(sock=None, _buffer=[], _HTTPConnection__response=None, _HTTPConnection__state="Idle")


def unlock(lock: Any) -> None:
    """Release a lock whose holder is a thread of the trainer."""
    lock._at_fork_reinit()


def reopen_lmdb(environment: Any) -> Any:
    """Open an LMDB environment again, as it was opened."""
    from antifreeze.engine.crossing.kinds.lmdb_environments import reopen  # noqa: PLC0415 - needs lmdb

    return reopen(environment)


def do_without_threads(_: Any) -> None:
    """Tell tokenizers, which reads this each time, that there are no threads."""
    os.putenv("TOKENIZERS_PARALLELISM", "false")


def _executors() -> Any:
    from concurrent import futures  # noqa: PLC0415 - it is loaded, because there is one

    return futures


# What a user has given it stays; by several names in several versions of Python.
_PREPARATION = frozenset({"_initializer", "_initargs", "_create_worker_context", "_resolve_work_item_task"})


def _take_over(executor: Any, own: Any) -> None:
    vars(executor).update({name: value for name, value in vars(own).items() if name not in _PREPARATION})


def _places(thing: Any, holder: Any) -> Iterator[Callable[[Any], object]]:
    """How to put another object where this one stands: in a dict, a list, a deque, a closure, an attribute."""
    if is_a(holder, dict):
        yield from (partial(dict.__setitem__, holder, key) for key, value in dict.items(holder) if value is thing)
    for kind in (list, deque):
        if is_a(holder, kind):
            places = (at for at, value in enumerate(kind.__iter__(holder)) if value is thing)
            yield from (partial(kind.__setitem__, holder, at) for at in places)
    if type(holder) is types.CellType:
        yield partial(setattr, holder, "cell_contents")
    elif type(holder) is not types.FrameType:
        names = [name for name, value in attributes_of(holder).items() if value is thing]
        yield from (partial(object.__setattr__, holder, name) for name in names)


def _has_no_place(thing: Any, holder: Any) -> bool:
    """Whether this holds it where nothing else can be put: in a tuple, a bound method, a partial."""
    return any(each is thing for each in gc.get_referents(holder)) and not any(_places(thing, holder))


def _is_opened_by_lmdb(thing: Any) -> bool:
    """Whether it belongs to an environment, and ends with it."""
    lmdb = sys.modules["lmdb"]
    kinds = (lmdb.Transaction, lmdb.Cursor, lmdb._Database)
    return any(
        is_a(getattr(thing, "__self__", None) if is_a(thing, types.BuiltinMethodType) else thing, kind)
        for kind in kinds
    )
