"""What a worker keeps from sample to sample: two descriptions that are equal are evidence that it keeps nothing.

A worker that is renewed loses what it keeps. So this look goes further than that of `staleness.py`: into attributes that a
class of the user's keeps to itself, closures, default arguments, the globals that code names, and long containers and
arrays. Of a container it takes some elements at equal distances: a worker that changes what it visits has changed some of
these when it has visited many times as many samples as lie between two of them. Of a large array it asks the kernel whether
the worker has written to it.
"""

from __future__ import annotations

import array
import contextvars
import ctypes
import datetime as dt
import decimal
import fractions
import itertools
import math
import pathlib
import sys
import threading
import types
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset

from antifreeze import machine
from antifreeze.engine.crossing.reading import (
    MOST_ELEMENTS,
    ancestors,
    attributes_of,
    is_a,
    is_public,
    kept_apart,
    module_of,
    name_of,
    namespace_of,
    some_elements,
    some_entries,
    spread,
)
from antifreeze.engine.crossing.state import is_user_module, library_directories
from antifreeze.engine.crossing.walk import ways
from antifreeze.engine.worker.kinds import draws_from_opencv, kind_of, plain_bytes
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.torch_side.tensors import as_plain_tensors
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:
    import numpy as np

# To look at an object copies its page: at most 8 MB of them.
MOST_OBJECTS = 2000
# Of all containers together, for the same reason.
MOST_PARTS = 10_000
# Arrays up to this size are read whole, as long as that is less than so much for all of them: some milliseconds.
WHOLE_BYTES, MOST_BYTES = 1 << 20, 8 << 20

Traits = list[Any]


class Description(NamedTuple):
    """What was seen."""

    traits: Traits
    distance: int
    """Of the longest container that was not read whole: one in so many elements was."""


_PLAIN = (type(None), bool, int, str, bytes, range)
# Their text tells all of them apart; and in it a number that is none (NaN) equals itself.
_TOLD_BY_TEXT = (
    *(float, complex, decimal.Decimal, fractions.Fraction, pathlib.PosixPath),
    *(dt.date, dt.datetime, dt.time, dt.timedelta),
)
_BYTES = (bytearray, array.array, memoryview)
_SHOWN_WHOLE = (Dataset, torch.nn.Module)


class CannotTell(Exception):
    """There is something that does not show its state, or that other processes have a part in."""


def describe(recipe: Recipe) -> Description:
    """What can be seen of all that samples depend on, in an order that is the same each time; may raise CannotTell."""
    roots = {"dataset": recipe.dataset, "collate_fn": recipe.collate_fn, "worker_init_fn": recipe.worker_init_fn}
    look = _Look()
    found = ways(
        roots,
        closed=(torch.Tensor,),
        most_objects=MOST_OBJECTS,
        longest=math.inf,
        shows_private=look.shows_private,
        apart=_KEEPING_APART,
    )
    return Description([look.at(thing) for _, thing in found], look.distance)


# What a function has in its cache can be made again.
_KEEPING_APART = (threading.local, contextvars.ContextVar)


class _Look:
    """One look at a bounded number of objects."""

    def __init__(self) -> None:
        self._parts_left = MOST_PARTS
        self._bytes_left = MOST_BYTES
        self._libraries = library_directories()
        self._shown: dict[int, tuple[type, bool]] = {}
        self.distance = 1

    def shows_private(self, kind: type) -> bool:
        """Whether attributes with an underscore count: what a library keeps to itself may be a cache (pandas)."""
        known = self._shown.get(id(kind))
        if known is None:
            is_shown = any(each in _SHOWN_WHOLE or self._is_users(each) for each in ancestors(kind))
            known = self._shown[id(kind)] = kind, is_shown
        return known[1]

    def _is_users(self, kind: type) -> bool:
        name = module_of(kind)
        return name == "__main__" or is_user_module(sys.modules.get(name), self._libraries)

    def at(self, thing: Any) -> Any:
        """What can be seen of one object, but for the objects that it holds: each of them is looked at by itself."""
        kind = type(thing)
        if kind_of(thing) is not None:
            return name_of(kind)  # a generator: whoever goes on gets its state
        if module_of(kind).startswith(("multiprocessing.", "_multiprocessing", "torch.multiprocessing")):
            raise CannotTell(name_of(kind))
        if is_a(thing, torch.Tensor):
            return self._of_tensor(thing)
        if HAS_NUMPY and is_a(thing, np.ndarray):
            return self._of_array(thing)
        if is_a(thing, type) or is_a(thing, types.ModuleType):
            return None
        if is_a(thing, types.FunctionType):
            return self._of_function(thing)
        if _is_opaque_iterator(kind):
            raise CannotTell(name_of(kind))
        return name_of(kind), self._of_container(thing), self._of_attributes(thing)

    def _of_attributes(self, thing: Any) -> Any:
        kind = type(thing)
        is_new = id(kind) not in self._shown
        is_shown = self.shows_private(kind)
        own = [(name, _plain(part)) for name, part in attributes_of(thing).items() if is_shown or is_public(name)]
        if is_a(thing, _KEEPING_APART[0]) or is_a(thing, _KEEPING_APART[1]):
            own += [(name, _plain(part)) for name, part in kept_apart(thing).items()]
        return own, self._of_classes(kind) if is_new else None

    def _of_classes(self, kind: type) -> Any:
        """Attributes that all objects of a class share."""
        return [
            (name, _plain(part))
            for each in ancestors(kind)
            if self._is_users(each)
            for name, part in list(namespace_of(each).items())
        ]

    def _of_container(self, thing: Any) -> Any:
        for kind, some in _CONTAINERS:
            if is_a(thing, kind):
                length = kind.__len__(thing)
                self._note_distance(length, MOST_ELEMENTS)
                if self._parts_left <= 0:
                    return length
                parts = [_plain(part) for part in some(thing)]
                self._parts_left -= len(parts)
                return length, parts
        return None

    def _of_function(self, function: types.FunctionType) -> Any:
        if function.__code__.co_filename.startswith(self._libraries):
            return None
        if draws_from_opencv(function):
            raise CannotTell("cv2")
        return (
            [_cell(each) for each in function.__closure__ or ()],
            [_plain(part) for part in function.__defaults__ or ()],
            [(name, _plain(part)) for name, part in (function.__kwdefaults__ or {}).items()],
            [(name, _plain(part)) for name, part in function.__dict__.items()],
        )

    def _of_array(self, array: Any) -> Any:
        array = np.asarray(array)
        if array.dtype.hasobject:
            step = max(1, array.size // MOST_ELEMENTS)
            self._note_distance(array.size, MOST_ELEMENTS)
            return array.shape, [_plain(part) for part in array.flat[::step]] if array.dtype == object else None
        if not array.flags.writeable:
            return array.shape
        if self._may_read(array.nbytes):
            return array.shape, zlib.crc32(array.tobytes())
        bounds_of = getattr(np.lib, "array_utils", np).byte_bounds  # where it is depends on the version
        return array.shape, _of_memory(*bounds_of(array))

    def _of_tensor(self, tensor: torch.Tensor) -> Any:
        with as_plain_tensors():
            try:
                if torch.Tensor.is_shared(tensor):  # type: ignore[no-untyped-call]
                    return None  # all see what is written there
                storage = tensor.untyped_storage()
                if not self._may_read(storage.nbytes()):
                    first = storage.data_ptr()
                    return tuple(tensor.shape), _of_memory(first, first + storage.nbytes())
                raw = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
                return tuple(tensor.shape), zlib.crc32(plain_bytes(raw))
            except CannotTell:
                raise
            except Exception:  # sparse ones, those of devices, and others without memory that can be read
                return name_of(type(tensor))

    def _may_read(self, nbytes: int) -> bool:
        """Whether all of an array is to be read."""
        if nbytes > min(WHOLE_BYTES, self._bytes_left):
            return False
        self._bytes_left -= nbytes
        return True

    def _note_distance(self, length: int, read: int) -> None:
        self.distance = max(self.distance, -(-length // read))


def _plain(thing: Any) -> Any:
    """A plain value; of anything else its kind."""
    if any(type(thing) is kind for kind in _PLAIN):  # `in` would ask the class what it is equal to
        return type(thing), thing
    if any(type(thing) is kind for kind in _TOLD_BY_TEXT):
        return repr(thing)
    if HAS_NUMPY and is_a(thing, np.generic):  # what numpy gives for a sum or a mean
        return name_of(type(thing)), np.generic.tobytes(thing)
    return _of_bytes(thing) if any(type(thing) is kind for kind in _BYTES) else name_of(type(thing))


def _of_bytes(thing: Any) -> Any:
    view = memoryview(thing)
    if view.readonly:
        return view.nbytes
    if view.nbytes <= WHOLE_BYTES:
        return view.nbytes, zlib.crc32(view)
    first = torch.frombuffer(view, dtype=torch.uint8).data_ptr()
    return view.nbytes, _of_memory(first, first + view.nbytes)


def _of_memory(first: int, end: int) -> int:
    """What can be seen of memory that is too much to be read; CannotTell if it has been written to since the fork."""
    pages = machine.whole_pages(first, end)
    if machine.copied_bytes(pages) != 0:
        raise CannotTell("an array that has been written to")
    ends = ctypes.string_at(first, pages.start - first), ctypes.string_at(pages.end, end - pages.end)
    return zlib.crc32(b"".join(ends))  # other objects may lie in the same pages


def _cell(cell: types.CellType) -> Any:
    try:
        return _plain(cell.cell_contents)
    except ValueError:  # not given a value yet
        return None


def _is_opaque_iterator(kind: type) -> bool:
    """Whether it goes on with each use, and only C code knows where it is: a file, a generator, a count of itertools."""
    advance = next(
        (namespace_of(each)["__next__"] for each in ancestors(kind) if "__next__" in namespace_of(each)), None
    )
    return advance is not None and not is_a(advance, types.FunctionType)


def _some_of_dict(entries: dict[Any, Any]) -> Iterable[Any]:
    parts = list(itertools.chain.from_iterable(some_entries(entries)))
    step = dict.__len__(entries) // MOST_ELEMENTS
    if step and type(parts[0]) is int:  # most likely all are; to go through the others would copy their pages
        parts += [dict.get(entries, number) for number in range(0, dict.__len__(entries), step)]
    return parts


def _some_of_list(elements: Any) -> Iterable[Any]:
    kind = list if is_a(elements, list) else tuple
    return (element for _, element in spread(elements, kind))


_CONTAINERS: tuple[tuple[Any, Callable[[Any], Iterable[Any]]], ...] = (
    (dict, _some_of_dict),
    (list, _some_of_list),
    (tuple, _some_of_list),
    (deque, lambda elements: some_elements(deque.__iter__(elements))),
    (set, lambda elements: some_elements(set.__iter__(elements))),
    (frozenset, lambda elements: some_elements(frozenset.__iter__(elements))),
)
