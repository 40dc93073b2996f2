"""Objects → a parcel that another process can open: one dump, big buffers out of band, once.

One dump for everything that must stay together: two dumps would split the globals that functions share. Classes and
functions that travel by value are listed, in the same dump, so that results can name them by number on the way back.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import pickle
import struct
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import cloudpickle
import torch

from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.layout import ALIGNMENT
from antifreeze.engine.arena.pickled import typed_storage

# Smaller buffers travel inside the pickle.
OUT_OF_BAND_FROM = 4096
# A message carries at most 253 descriptors (the kernel's SCM_MAX_FD); what is beyond is copied.
MOST_SHARED = 240
_MAIN = ("__main__", "__mp_main__")


@dataclass(frozen=True, slots=True)
class Crossing:
    """All that must be sent: open it with `receive`."""

    body: int
    """Descriptor of the pickle."""
    buffers: int
    """Descriptor of the big buffers, one after the other."""
    shared: tuple[int, ...]
    """Descriptors of tensors that live in shared memory and stay there."""
    by_value: tuple[Any, ...]
    """Classes and functions of ours that travelled by value; their place here is their number."""

    @property
    def descriptors(self) -> list[int]:
        """In the order in which `receive` expects them."""
        return [self.body, self.buffers, *self.shared]

    def close(self) -> None:
        """Close our copies of the descriptors."""
        for fd in self.descriptors:
            os.close(fd)


def send(thing: Any, *, main_names: frozenset[str]) -> Crossing:
    """Pack an object; what it raises if it cannot be packed is pickle's own error.

    `main_names` are the names of the main module that the other side gets by importing it.
    """
    stream = io.BytesIO()
    pickler = _CrossingPickler(stream, main_names)
    try:
        pickler.dump(thing)
        by_value = tuple(pickler.by_value)
        pickler.dump(list(by_value))
        places = pickle.dumps(pickler.places)
        header = struct.pack("Q", len(places))
        body = memory.copy_of([header, places, stream.getbuffer()], "antifreeze-crossing")
        with _closing_on_error([body]):
            buffers = memory.copy_of(_padded(pickler.buffers), "antifreeze-buffers")
    except BaseException:
        for fd in pickler.shared:
            os.close(fd)
        raise
    return Crossing(body, buffers, tuple(pickler.shared), by_value)


def receive(descriptors: list[int]) -> tuple[Any, list[Any]]:
    """Unpack in the other process: (the object, what came by value); closes the descriptors.

    The big buffers are mapped copy-on-write: all workers share them until one writes.
    """
    body, buffers_fd, *shared = descriptors
    buffers = memory.map_private(buffers_fd)
    stream = io.BytesIO(memory.read_all(body))
    (length,) = struct.unpack("Q", stream.read(8))
    places = pickle.loads(stream.read(length))
    unpickler = _CrossingUnpickler(stream, buffers, places, shared)
    try:
        return unpickler.load(), unpickler.load()
    finally:
        for fd in shared:  # torch has made copies of them
            os.close(fd)


def _keep_slots(kind: Any, reduced: tuple[Any, ...]) -> None:
    """cloudpickle makes the class first and tells it of its slots later, when it is too late to have any."""
    if len(reduced[1]) == 6 and isinstance(reduced[1][3], dict):  # what a class is made of; not an enum
        reduced[1][3]["__slots__"] = vars(kind)["__slots__"]


class _CrossingPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, stream: io.BytesIO, main_names: frozenset[str]) -> None:
        # Before the rest: pickle looks for it when the pickler is made.
        self.dispatch_table = {
            **cloudpickle.Pickler.dispatch_table,
            torch.UntypedStorage: self._reduce_storage,
            torch.TypedStorage: self._reduce_typed_storage,
        }
        super().__init__(stream, 5, buffer_callback=self._take_buffer)
        self.by_value: list[Any] = []
        self.buffers: list[memoryview] = []
        self.places: list[tuple[int, int]] = []
        self.shared: list[int] = []
        self._end = ALIGNMENT
        self._main_names = main_names
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._seen: set[int] = set()

    def reducer_override(self, thing: Any) -> Any:
        """cloudpickle's choice between reference and value, with the main module as the other side will have it."""
        if not isinstance(thing, type | types.FunctionType):
            return NotImplemented
        if self._is_in_main(thing):
            return NotImplemented
        reduced = super().reducer_override(thing)
        if vars(thing).get("__slots__") and isinstance(reduced, tuple):
            _keep_slots(thing, reduced)
        if reduced is not NotImplemented and id(thing) not in self._seen:
            self._seen.add(id(thing))
            self.by_value.append(thing)
        return reduced

    def _is_in_main(self, thing: Any) -> bool:
        name = thing.__qualname__
        return (
            thing.__module__ in _MAIN
            and name in self._main_names
            and getattr(sys.modules["__main__"], name, None) is thing
        )

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        with contextlib.suppress(BufferError):  # not contiguous: stays in the pickle
            raw = buffer.raw()
            if raw.nbytes >= OUT_OF_BAND_FROM and not raw.readonly:
                self.places.append((self._append(raw), raw.nbytes))
                return False
        return True

    def _append(self, raw: memoryview) -> int:
        offset = self._end
        self.buffers.append(raw)
        self._end += -(-raw.nbytes // ALIGNMENT) * ALIGNMENT
        return offset

    def _reduce_storage(self, storage: torch.UntypedStorage) -> Any:
        return storage_from, self._place_of(storage)

    def _place_of(self, storage: torch.UntypedStorage) -> tuple[str, int, int]:
        length = storage.nbytes()
        if not length:
            return "buffer", 0, 0
        if storage.is_shared() and len(self.shared) < MOST_SHARED:
            with contextlib.suppress(RuntimeError):  # shared by file name: copied
                fd, length = storage._share_fd_cpu_()
                self.shared.append(os.dup(fd))  # the storage keeps its own
                return "shared", len(self.shared) - 1, length
        raw = memoryview((ctypes.c_ubyte * length).from_address(storage.data_ptr())).cast("B")
        return "buffer", self._append(raw), length

    def _reduce_typed_storage(self, storage: torch.TypedStorage) -> Any:
        untyped = storage._untyped_storage
        if untyped.device.type != "cpu":
            return storage.__reduce_ex__(5)
        # Every tensor wraps its storage anew; pickle must see one object per storage to keep tensors on it together.
        untyped = self._storages.setdefault(untyped._cdata, untyped)
        return typed_storage, (untyped, storage.dtype)


def storage_from(kind: str, where: int, length: int) -> NoReturn:
    """A storage: stands in the pickle; the other side puts its own method in its place."""
    raise NotImplementedError


class _CrossingUnpickler(pickle.Unpickler):
    def __init__(
        self, stream: io.BytesIO, buffers: memoryview, places: list[tuple[int, int]], shared: list[int]
    ) -> None:
        super().__init__(stream, buffers=(buffers[start : start + length] for start, length in places))
        self._memory = _ReceivedMemory(buffers, shared)

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == storage_from.__name__:
            return self._memory.storage_from  # not a method of this object: pickle keeps it, and would make a cycle
        return super().find_class(module, name)


class _ReceivedMemory:
    def __init__(self, buffers: memoryview, shared: list[int]) -> None:
        self._buffers = buffers
        self._shared = shared

    def storage_from(self, kind: str, where: int, length: int) -> torch.UntypedStorage:
        if kind == "shared":
            return torch.UntypedStorage._new_shared_fd_cpu(self._shared[where], length)  # type: ignore[attr-defined, no-any-return]
        if not length:
            return torch.UntypedStorage(0)
        return torch.frombuffer(self._buffers[where : where + length], dtype=torch.uint8).untyped_storage()


def _padded(buffers: list[memoryview]) -> Iterator[bytes | memoryview]:
    yield bytes(ALIGNMENT)  # never empty, for nothing cannot be mapped
    for raw in buffers:
        yield raw
        yield bytes(-raw.nbytes % ALIGNMENT)


@contextlib.contextmanager
def _closing_on_error(descriptors: list[int]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for fd in descriptors:
            os.close(fd)
        raise
