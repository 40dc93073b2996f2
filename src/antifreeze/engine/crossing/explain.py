"""Why an object cannot be pickled: the path to the part that is to blame, and its type."""

from __future__ import annotations

import copyreg
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cloudpickle

from antifreeze.engine.crossing import results
from antifreeze.errors import CannotCross

Dump = Callable[[Any], bytes]

# Looking costs as much as pickling again and again; an error message is not worth more than this.
PATIENCE_S = 2.0
DEEPEST = 20


def explain(thing: Any, name: str, error: Exception, *, made_by: int | None = None) -> CannotCross:
    """The error to raise when `thing` could not be pickled because of `error`."""
    path, culprit = find_culprit(thing, name, cloudpickle.dumps if made_by is None else results.dump)
    if made_by is None:
        what = f"{path} cannot be sent to a worker"
        remedy = "make it in the worker (in __getitem__ or worker_init_fn), or use multiprocessing_context='fork'"
    else:
        what = f"worker {made_by} made a batch that cannot be sent: {path} cannot be pickled"
        remedy = "let the dataset return plain data (tensors, arrays, numbers, strings) in its place"
    return CannotCross(what, where=f"{path} is a {_type_name(culprit)}", why=_first_line(error), try_=remedy)


def find_culprit(thing: Any, name: str, dump: Dump = cloudpickle.dumps) -> tuple[str, Any]:
    """(path, object) of the innermost part of `thing` that cannot be pickled."""
    deadline = time.monotonic() + PATIENCE_S
    path = name
    for _ in range(DEEPEST):
        for step, part in _parts(thing):
            if time.monotonic() > deadline:
                return path, thing
            if not _crosses(part, dump):
                path, thing = path + step, part
                break
        else:
            break
    return path, thing


def _crosses(thing: Any, dump: Dump) -> bool:
    try:
        dump(thing)
    except Exception:  # noqa: BLE001 - whatever it is, this is the culprit's branch
        return False
    return True


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in thing.items())
    elif isinstance(thing, list | tuple | set | frozenset | deque) or _is_array_of_objects(thing):
        yield from ((f"[{place}]", value) for place, value in enumerate(thing))
    elif callable(thing) and getattr(thing, "__closure__", None):
        names = thing.__code__.co_freevars
        cells = zip(names, thing.__closure__, strict=True)
        yield from ((f".<{name}>", cell.cell_contents) for name, cell in cells if cell != types.CellType())
    elif not isinstance(thing, type):
        yield from ((f".{name}", value) for name, value in getattr(thing, "__dict__", {}).items())
        slots = copyreg._slotnames(type(thing))  # type: ignore[attr-defined]
        yield from ((f".{name}", getattr(thing, name)) for name in slots if hasattr(thing, name))


def _is_array_of_objects(thing: Any) -> bool:
    return getattr(getattr(thing, "dtype", None), "hasobject", False) and thing.ndim == 1


def _type_name(thing: Any) -> str:
    kind = type(thing)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
