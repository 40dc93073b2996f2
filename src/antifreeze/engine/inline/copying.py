"""A dataset that is read apart from another one, in the same process: a deep copy, of all that can be copied.

What cannot stands in the copy itself, and nothing around it does: were it for a lock that the rest is shared, streams would
empty each other's buffers. An open file is opened again, where it stands, so that each stream reads all of it.
"""

from __future__ import annotations

import copy
import queue
import threading
import traceback
from typing import Any

from antifreeze.engine.backends.hazards.held import closed_types, held_types, loaded
from antifreeze.engine.crossing.kinds.base import Luggage
from antifreeze.engine.crossing.kinds.registry import Kinds
from antifreeze.engine.crossing.reading import is_a
from antifreeze.engine.showing import show
from antifreeze.errors import CannotCross
from antifreeze.observe.say import say_once

# Whoever holds more that cannot be copied is copied as a whole, or not at all.
MOST_EXCEPTIONS = 500


def copied(dataset: Any) -> Any:
    """A dataset that is read apart from this one; CannotCross if it cannot be copied."""
    instead: dict[int, Any] = {}
    for _ in range(MOST_EXCEPTIONS):
        try:
            return copy.deepcopy(dataset, dict(instead))
        except Exception as error:  # noqa: BLE001 - whatever it holds: a thread, a queue, a file
            holders = _under_way(error)
            part = next((each for each in holders if _is_whole(each)), holders[-1] if holders else dataset)
        if part is dataset or id(part) in instead:
            break
        instead[id(part)] = _stand_in(part, holders)
    try:
        shallow = copy.copy(dataset)
    except Exception as error:
        raise CannotCross(
            f"{type(dataset).__qualname__} cannot be copied",
            where="dataset",
            why=f"in one process, each worker number reads a copy of its own: {show(error)}",
            try_="num_workers=0, or a dataset that copy.copy can copy",
        ) from error
    say_once(
        f"{type(dataset).__qualname__} is read once for each worker number, in this process, and cannot be copied whole: "
        "the copies share what they hold. If it keeps items back in a buffer, they may come in another order, or twice, or "
        "not at all. num_workers=0 reads it once"
    )
    return shallow


def _under_way(error: Exception) -> list[Any]:
    """What was being copied when this was raised: the dataset, something that it holds, and so on to what cannot be."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return [frame.f_locals["x"] for frame in frames if frame.f_code is copy.deepcopy.__code__]


def _is_whole(thing: Any) -> bool:
    """Whether half a copy of it is of no use: a pool, a thread, a connection."""
    return any(is_a(thing, kind) for kind in (*held_types(), *closed_types()))


def _stand_in(part: Any, holders: list[Any]) -> Any:
    """What stands in the copy where this stands: it is opened again, or made anew, or itself."""
    if is_a(part, loaded("_thread:LockType")):
        is_alone = not any(is_a(holder, kind) for holder in holders for kind in (threading.Condition, queue.Queue))
        # One that stays locked while its stream is not read would stop all others, which are read by the same thread.
        return threading.Lock() if is_alone and not part.locked() else part
    kind = None if _is_whole(part) else Kinds()[type(part)]
    try:
        return part if kind is None else _opened_again(kind.plan(part, Luggage(0)))
    except Exception:  # noqa: BLE001 - it is open for writing, say
        return part


def _opened_again(plan: Any) -> Any:
    opener, arguments, *state = plan
    handle = opener(
        *(_opened_again(kind.plan(each, Luggage(0))) if (kind := Kinds()[type(each)]) else each for each in arguments)
    )
    if state and state[0]:
        vars(handle).update(state[0])
    return handle
