"""What lives by a thread of this process: a queue that a thread of the user's serves, an event loop that runs in one.

Neither a fork nor a copy brings the thread along, so that a worker which asks would wait forever. Said only on evidence:
the loop says which thread runs it, and the thread was started with the queue, or with an object that holds it. A class
that says itself how it is pickled may start another thread where it arrives: it is given the chance.
"""

from __future__ import annotations

import functools
import queue
import threading
import types
from collections.abc import Iterator, Mapping
from typing import Any

from antifreeze.engine.backends.choice import Hazard
from antifreeze.engine.backends.hazards.held import closed_types, held_types, loaded
from antifreeze.engine.crossing.reading import attributes_of, is_a, some_elements, some_entries
from antifreeze.engine.crossing.state import library_directories
from antifreeze.engine.crossing.walk import walk
from antifreeze.resources import PerWorker

_QUEUES = (queue.Queue, queue.SimpleQueue)
# From what a thread was started with to its queue: an object, a list in it, the queue.
DEEPEST = 3
_WHY = "that thread is in no worker, which would wait for it forever"


def find_lost_thread(roots: Mapping[str, Any]) -> Hazard | None:
    """The nearest thing within reach that no worker can use for want of a thread; None: there is none in sight."""
    here, main = threading.current_thread(), threading.main_thread()
    threads = [thread for thread in threading.enumerate() if thread is not here and thread is not main]
    if not threads:
        return None
    names = {thread.ident: thread.name for thread in threads}
    served = {id(each): thread for thread in filter(_is_users, threads) for each in _queues_of(thread)}
    # Executors and the like are judged whole, and made anew where they cross.
    for path, thing in walk(roots, closed=(*closed_types(), *held_types(), PerWorker)):
        if (thread := served.get(id(thing))) is not None:
            stays = not any(map(_is_pickled_its_own_way, _given_to(thread)))
            what = f"a queue that the thread {thread.name!r} serves"
            return Hazard(path, what, _WHY, may_freeze=True, stays_here=stays)
        if (loop := loaded("asyncio:BaseEventLoop")) is not None and is_a(thing, loop):
            runs_in = names.get(attributes_of(thing).get("_thread_id"))
            if runs_in is not None:
                what = f"an event loop that runs in the thread {runs_in!r}"
                return Hazard(path, what, _WHY, may_freeze=True, stays_here=True)
    return None


def _queues_of(thread: threading.Thread) -> Iterator[Any]:
    """The queues that a thread was started with, or that an object holds which it was started with."""
    level = list(_given_to(thread))
    seen: set[int] = set()
    for _ in range(DEEPEST):
        level = [thing for thing in level if id(thing) not in seen]
        seen.update(map(id, level))
        yield from (thing for thing in level if _is_queue(thing))
        level = [part for thing in level if not _is_queue(thing) for part in _parts(thing)]


def _given_to(thread: threading.Thread) -> Iterator[Any]:
    yield thread
    target = _target(thread)
    if is_a(target, functools.partial):
        yield from (*target.args, *target.keywords.values())
        target = target.func
    if is_a(target, types.MethodType):
        yield target.__self__
    elif is_a(target, types.FunctionType):
        for cell in target.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not given a value yet
                continue


def _parts(thing: Any) -> list[Any]:
    if is_a(thing, list) or is_a(thing, tuple):
        return some_elements(thing)
    if is_a(thing, dict):
        return [value for _, value in some_entries(thing)]
    return list(attributes_of(thing).values())


def _target(thread: threading.Thread) -> Any:
    return attributes_of(thread).get("_target")


def _is_users(thread: threading.Thread) -> bool:
    """Whether code of the user's runs in it: libraries see to their threads, or are on a list of their own."""
    target: Any = _target(thread) or type(thread).run
    while is_a(target, functools.partial):
        target = target.func
    if is_a(target, types.MethodType):
        target = target.__func__
    if not is_a(target, types.FunctionType):
        return False
    return not target.__code__.co_filename.startswith(library_directories())


def _is_queue(thing: Any) -> bool:
    return any(is_a(thing, kind) for kind in _QUEUES)


def _is_pickled_its_own_way(thing: Any) -> bool:
    kind = type(thing)
    return not _is_queue(thing) and any(
        getattr(kind, way) is not getattr(object, way) for way in ("__getstate__", "__reduce__", "__reduce_ex__")
    )
