"""Arrays of numpy that lie in files (memmap, plain arrays over a mapping), or that are read-only; archives of arrays (npz).

All may be written to in a worker, and that stays there: `multiprocessing` sends copies, and a copy is never read-only.
"""

from __future__ import annotations

import ctypes
import dataclasses
import pickle
from typing import Any

import numpy as np

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, Reduced, fresh
from antifreeze.engine.crossing.kinds.mappings import KINDS as MAPPINGS
from antifreeze.engine.crossing.kinds.mappings import Stretch, address_of, is_readonly, pack

# By this protocol, and Python 3.14's pickle by default, numpy sends the memory as it is; by older ones in native order.
OUT_OF_BAND_PROTOCOL = 5


def plan_array(array: Any, luggage: Luggage) -> Any:
    """A view of a mapping, whole or in part: numpy's memmap, or a plain array over one."""
    mapping = _mapping_below(array) if array.size else None
    sent = None if mapping is None else _send(mapping, luggage)
    if mapping is None or sent is None:
        return _plan_copy(array)
    start = array.__array_interface__["data"][0] - address_of(mapping)
    place = array.shape, array.dtype, start, array.strides
    attributes = {name: getattr(array, name, None) for name in ("filename", "offset", "mode")}
    return make_array, (type(array), sent, place, attributes)


def make_array(cls: type[Any], mapping: Any, place: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """The other side of `plan_array`."""
    shape, dtype, start, strides = place
    array: Any = np.ndarray.__new__(cls, shape, dtype, mapping, start, strides)
    if isinstance(array, np.memmap):
        vars(array).update({**attributes, "mode": "c", "_mmap": mapping})
    return array


def _plan_copy(array: Any) -> Any:
    """Nothing special, but for what only `multiprocessing`'s pickle changes: copies are in this machine's byte order, and
    may be written to, so a read-only array goes as another over the same memory.
    """
    if not array.dtype.isnative and pickle.DEFAULT_PROTOCOL < OUT_OF_BAND_PROTOCOL:
        return array.__reduce__()
    flags = array.flags
    is_dense = flags.c_contiguous or flags.f_contiguous
    if type(array) is not np.ndarray or flags.writeable or not is_dense or array.dtype.hasobject:
        return NotImplemented
    memory: Any = (ctypes.c_ubyte * array.nbytes).from_address(array.__array_interface__["data"][0])
    writeable = np.ndarray(array.shape, array.dtype, memory, order="C" if flags.c_contiguous else "F")
    return writeable.__reduce_ex__(5)


class _SentMapping:
    """A mapping that arrays lie over: one object, so that it is one again on the other side."""

    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch

    def __reduce__(self) -> Reduced:
        return Stretch.map, (self._stretch,)


def _send(mapping: Any, luggage: Luggage) -> _SentMapping | None:
    key = "mapping", id(mapping)
    if key not in luggage.memo:
        stretch = pack(address_of(mapping), len(mapping), luggage, is_readonly=is_readonly(mapping))
        own = None if stretch is None else _SentMapping(dataclasses.replace(stretch, is_readonly=False))
        luggage.memo[key] = mapping, own
    sent: _SentMapping | None = luggage.memo[key][1]
    return sent


def _mapping_below(array: Any) -> Any:
    below = array.base
    while isinstance(below, np.ndarray):
        below = below.base
    if isinstance(below, memoryview):
        below = below.obj
    return below if type(below) in MAPPINGS else None


def plan_npz(handle: Any, luggage: Luggage) -> Any:
    """The file below and how arrays may be read from it; a closed archive is like any other object."""
    if handle.zip is None:
        return NotImplemented
    options = {name: getattr(handle, name) for name in ("allow_pickle", "pickle_kwargs", "max_header_size")}
    return open_npz, (type(handle), handle.zip.fp, handle.fid is not None, options)


def open_npz(cls: type[Any], file: Any, owns: bool, options: dict[str, Any]) -> Any:
    """The other side of `plan_npz`."""
    handle = fresh(cls)
    np.lib.npyio.NpzFile.__init__(handle, file, own_fid=owns, **options)
    return handle


KINDS: dict[type, Kind] = {
    np.memmap: Kind(plan_array),
    np.ndarray: Kind(plan_array),
    np.lib.npyio.NpzFile: Kind(plan_npz),
}
