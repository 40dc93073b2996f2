"""Objects → a parcel that another process can open: one dump, big buffers out of band, once.

One dump for everything that must stay together: two dumps would split the globals that functions share. Classes and
functions that travel by value are listed, in the same dump, so that results can name them by number on the way back.
Live handles travel as plans from which they are opened again (`kinds/`).
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import pickle
import struct
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import cloudpickle
import torch

from antifreeze import machine
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.layout import ALIGNMENT
from antifreeze.engine.crossing import by_value, sharing
from antifreeze.engine.crossing.kinds import base, mappings
from antifreeze.engine.crossing.kinds.registry import Kinds
from antifreeze.engine.crossing.spawning import spawn_reducers, spawning, tracker_fd, use_tracker
from antifreeze.torch_side.tensors import (
    REBUILT_TYPED,
    share_by_descriptor,
    share_by_name,
    storage_key,
    storage_of_descriptor,
    typed_storage,
    untyped_of,
)
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:
    import numpy as np

# Smaller buffers travel inside the pickle.
OUT_OF_BAND_FROM = 4096
# More files than these go by their names; the descriptors that are left are for shared tensors, which have none.
MOST_FILES = 120
# Of the descriptors that this process may have, these are left to the program, and so many to each of its workers.
SPARE_DESCRIPTORS, DESCRIPTORS_PER_WORKER = 64, 5
# Less than this is copied sooner than its file is found.
MAPPED_FROM = 1 << 20
_CODE = (type, types.FunctionType)


@dataclass(frozen=True, slots=True)
class Crossing:
    """All that must be sent: a `Parcel` opens it."""

    body: int
    """Descriptor of the pickle."""
    buffers: int
    """Descriptor of the big buffers, one after the other."""
    luggage: base.Luggage
    """Descriptors of tensors that live in shared memory and stay there, and of open files."""
    by_value: tuple[Any, ...]
    """Classes and functions of ours that travelled by value; their place here is their number."""
    modules: frozenset[str]
    """Those that are needed to open it."""
    copied: int
    """How many tensors had to be copied that should have been shared."""
    tracker: int | None
    """Descriptor of the program's resource tracker, which stays open."""

    @property
    def descriptors(self) -> list[int]:
        """To be sent, in the order in which a `Parcel` expects them; some of them belong to tensors of ours."""
        return [self.body, self.buffers, *self.luggage.descriptors, *([] if self.tracker is None else [self.tracker])]

    def detach(self) -> list[int]:
        """The same for a `Parcel` in this process, which closes them."""
        borrowed = self.luggage.borrowed
        shared = (os.dup(fd) if number in borrowed else fd for number, fd in enumerate(self.luggage.descriptors))
        return [self.body, self.buffers, *shared, *([] if self.tracker is None else [os.dup(self.tracker)])]

    def close(self) -> None:
        """Close our copies of the descriptors."""
        os.close(self.body)
        os.close(self.buffers)
        self.luggage.close()


def send(thing: Any, *, main_names: frozenset[str], workers: int = 0) -> Crossing:
    """Pack an object; what it raises if it cannot be packed is pickle's own error, or that of a kind of handles.

    `main_names` are the names of the main module that the other side gets by importing it. CPU tensors move to shared
    memory, in place, as they do when torch pickles them, so that both sides see what either writes; and locks, queues and
    the like of `multiprocessing` go as they go to a process that it spawns. So many workers are going to need descriptors,
    too.
    """
    stream = io.BytesIO()
    pickler = _CrossingPickler(stream, main_names, shares=True, workers=workers)
    luggage = pickler.luggage
    try:
        with spawning(luggage):
            pickler.dump(thing)
        pickler.keep_what_arrays_show()
        by_value = tuple(pickler.by_value)
        pickler.dump(list(by_value))
        tracker = tracker_fd()
        header = pickle.dumps((pickler.places, tracker is not None))
        length = struct.pack("Q", len(header))
        body = memory.copy_of([length, header, stream.getbuffer()], "antifreeze-crossing")
        with _closing_on_error([body]):
            buffers = memory.copy_of(_padded(pickler.buffers), "antifreeze-buffers")
        return Crossing(body, buffers, luggage, by_value, frozenset(pickler.modules), pickler.copied, tracker)
    except BaseException:
        luggage.close()
        raise
    finally:
        pickler.forget()


@contextlib.contextmanager
def asked(*, main_names: frozenset[str]) -> Iterator[pickle.Pickler]:
    """A pickler like the one of `send`: to be asked for its reducers, not to dump."""
    pickler = _CrossingPickler(io.BytesIO(), main_names)
    try:
        yield pickler
    finally:
        pickler.luggage.close()
        pickler.forget()


class Parcel:
    """What has arrived: opened in each of several forks of this process.

    The big buffers are mapped copy-on-write: all that open it share them until one writes.
    """

    def __init__(self, descriptors: list[int]) -> None:
        body, buffers, *self._shared = descriptors
        self._buffers = memory.map_private(buffers)
        raw = memory.read_all(body)
        (length,) = struct.unpack_from("Q", raw)
        self._places: list[tuple[int, int]]
        self._places, has_tracker = pickle.loads(memoryview(raw)[8 : 8 + length])
        self._content = memoryview(raw)[8 + length :]
        if has_tracker:
            use_tracker(self._shared.pop())

    def open(self) -> tuple[Any, list[Any]]:
        """(The object, what came by value); closes the descriptors that this process has of it."""
        unpickler = _CrossingUnpickler(io.BytesIO(self._content), self._buffers, self._places, self._shared)
        try:
            return unpickler.load(), unpickler.load()
        finally:
            for fd in self._shared:  # what needs one has made a copy
                if fd >= 0:
                    os.close(fd)


def _storages_behind(array: Any) -> list[torch.UntypedStorage]:
    """That of the tensor that an array was made from by `numpy()`; none, if it was not."""
    while type(array) is np.ndarray:
        array = array.base
    return [array.untyped_storage()] if isinstance(array, torch.Tensor) else []


def _keep_slots(kind: Any, reduced: tuple[Any, ...]) -> None:
    """cloudpickle makes the class first and tells it of its slots later, when it is too late to have any."""
    if len(reduced[1]) == 6 and isinstance(reduced[1][3], dict):  # what a class is made of; not an enum
        reduced[1][3]["__slots__"] = vars(kind)["__slots__"]


def _refuse_library(library: ctypes.CDLL) -> NoReturn:
    """Cloudpickle would take it, and the other side could not rebuild it."""
    raise pickle.PicklingError(f"{library!r} is a library that this process has loaded")


class _CrossingPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(
        self,
        stream: io.BytesIO,
        main_names: frozenset[str],
        *,
        shares: bool = False,
        workers: int = 0,
    ) -> None:
        # Before the rest: pickle looks for it when the pickler is made.
        self.dispatch_table = {
            **cloudpickle.Pickler.dispatch_table,
            **by_value.REDUCERS,
            **(spawn_reducers() if shares else {}),
            torch.UntypedStorage: self._reduce_storage,
            torch.TypedStorage: self._reduce_typed_storage,
            ctypes.CDLL: _refuse_library,
            ctypes.PyDLL: _refuse_library,
        }
        super().__init__(stream, 5, buffer_callback=self._take_buffer)
        self.by_value: list[Any] = []
        self.buffers: list[memoryview] = []
        self.places: list[tuple[int, int]] = []
        self.luggage = base.Luggage(MOST_FILES)
        self.modules: set[str] = set()
        """Of classes and functions that go by name, and modules themselves."""
        self._kinds = Kinds()
        self._end = ALIGNMENT
        self._main_names = main_names
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._old: dict[int, torch.UntypedStorage] = {}
        """The memory that storages had before they were shared, if an array may lie over it."""
        self._shown: list[torch.UntypedStorage] = []
        """Those of tensors that arrays of the dataset lie over."""
        self._seen: set[int] = set()
        self._shares = shares
        self._spare = SPARE_DESCRIPTORS + DESCRIPTORS_PER_WORKER * workers
        self._most_sent = machine.descriptor_limit() - self._spare
        self._most_opened: int | None = None  # not known yet
        self.copied = 0
        """Tensors that should have been shared."""

    def forget(self) -> None:
        """Let go of all that was pickled: this object, with methods of its own for reducers, waits for the collector."""
        self.clear_memo()
        self.__dict__.clear()

    def reducer_override(self, thing: Any) -> Any:
        """A plan for a live handle; for code, cloudpickle's choice between name and value, with the main module as the
        other side will have it.
        """
        if self._shares and HAS_NUMPY and type(thing) is np.ndarray:
            self._shown += _storages_behind(thing)
        kind = self._kinds[type(thing)]
        if kind is not None:
            return kind.reduce(thing, self.luggage)
        if not isinstance(thing, _CODE):
            if type(thing) is types.ModuleType:
                self.modules.add(thing.__name__)
            return self._reduce_named(thing) if by_value.goes_by_name(thing) else NotImplemented
        if by_value.is_in_main(thing, thing.__qualname__, self._main_names):
            return NotImplemented
        reduced = super().reducer_override(thing)
        if reduced is NotImplemented:
            self.modules.add(thing.__module__)
            return reduced
        module = by_value.module_of_misnamed(thing, reduced)
        if module is not None:
            self.modules.add(module.__name__)
            return getattr, (module, thing.__name__)
        if vars(thing).get("__slots__"):
            _keep_slots(thing, reduced)
        if isinstance(thing, type):
            reduced = by_value.made_once(reduced)
        elif self._main_names:
            reduced = by_value.in_main_globals(thing, reduced)
        self._list(thing)
        return by_value.made_if_missing(thing, thing.__qualname__, reduced) if self._main_names else reduced

    def _reduce_named(self, thing: Any) -> Any:
        """An object of the main module that may want to go by its name."""
        if type(thing) in self.dispatch_table:
            return NotImplemented
        reduced = thing.__reduce_ex__(5)
        if not isinstance(reduced, str) or by_value.is_in_main(thing, reduced, self._main_names):
            return reduced
        self._list(thing)
        made = by_value.reduce_nameless(thing)
        return by_value.made_if_missing(thing, reduced, made) if self._main_names else made

    def _list(self, thing: Any) -> None:
        if id(thing) not in self._seen:
            self._seen.add(id(thing))
            self.by_value.append(thing)

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
        length = storage.nbytes()
        if not length:
            return storage_from, ("buffer", 0, 0)
        if storage.is_shared() and (reduced := self._reduce_shared(storage)) is not None:
            return reduced
        if length >= MAPPED_FROM:
            stretch, before = mappings.pack_part(storage.data_ptr(), length, self.luggage)
            if stretch is not None:
                return storage_over, (stretch, before, length)
        if self._shares and not storage.is_shared():
            if self._may_open_another() and self._share(storage):
                return self._reduce_shared(storage)
            self.copied += 1
        return self._reduce_buffer(storage, length)

    def _share(self, storage: torch.UntypedStorage) -> bool:
        # Arrays that `tensor.numpy()` has made stay where they are. They are still to be pickled, perhaps.
        if not storage.resizable() and (old := sharing.move(storage)) is not None:
            self._old[storage_key(storage)] = old
            return True
        return sharing.share(storage)

    def keep_what_arrays_show(self) -> None:
        """Keep the memory that tensors have left, as long as they live, where an array of the dataset lies over it."""
        for storage in self._shown:
            if (old := self._old.get(storage_key(storage))) is not None:
                storage._antifreeze_left = old  # type: ignore[attr-defined]

    def _reduce_shared(self, storage: torch.UntypedStorage) -> Any:
        """By its descriptor, or by its name; None if it is to be copied."""
        try:
            fd, length = share_by_descriptor(storage)
        except RuntimeError:  # it is shared by its name
            manager, name, length = share_by_name(storage)
            self.luggage.kept.append(storage)
            return sharing.storage_named, (manager, name, length)
        if fd < 0:
            if storage.filename is not None:
                raise base.refuse_writing(f"the tensor over {storage.filename!r}", "shared=True")
            return None
        if len(self.luggage.descriptors) >= self._most_sent:  # more than the other side may have open
            self.copied += 1
            return None
        return storage_from, ("shared", self.luggage.borrow(fd, storage), length)

    def _reduce_buffer(self, storage: torch.UntypedStorage, length: int) -> Any:
        raw = memoryview((ctypes.c_ubyte * length).from_address(storage.data_ptr())).cast("B")
        return storage_from, ("buffer", self._append(raw), length)

    def _may_open_another(self) -> bool:
        """Whether one more tensor may be shared: each keeps a descriptor open, here and on the other side."""
        if self._most_opened is None:
            self._most_opened = machine.descriptors_left() - self._spare
        self._most_opened -= 1
        return self._most_opened >= 0 and len(self.luggage.descriptors) < self._most_sent

    def _reduce_typed_storage(self, storage: torch.TypedStorage) -> Any:
        untyped = untyped_of(storage)
        if untyped.device.type != "cpu":
            return storage.__reduce_ex__(5)
        # Every tensor wraps its storage anew; pickle must see one object per storage to keep tensors on it together.
        untyped = self._storages.setdefault(storage_key(untyped), untyped)
        return typed_storage, (untyped, storage.dtype)


def storage_from(kind: str, where: int, length: int) -> NoReturn:
    """A storage: stands in the pickle; the other side puts its own method in its place."""
    raise NotImplementedError


def storage_over(stretch: mappings.Stretch, before: int, length: int) -> torch.UntypedStorage:
    """A storage over a part of a file."""
    return torch.frombuffer(stretch.map(), dtype=torch.uint8, offset=before, count=length).untyped_storage()


class _CrossingUnpickler(pickle.Unpickler):
    def __init__(
        self, stream: io.BytesIO, buffers: memoryview, places: list[tuple[int, int]], shared: list[int]
    ) -> None:
        super().__init__(stream, buffers=(buffers[start : start + length] for start, length in places))
        self._memory = _ReceivedMemory(buffers, shared)

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == storage_from.__name__:
            return self._memory.storage_from  # not a method of this object: pickle keeps it, and would make a cycle
        if module == base.__name__ and name == base.descriptor_at.__name__:
            return self._memory.descriptor_at
        if (module, name) in REBUILT_TYPED:
            return REBUILT_TYPED[module, name]
        return super().find_class(module, name)


class _ReceivedMemory:
    def __init__(self, buffers: memoryview, shared: list[int]) -> None:
        self._buffers = buffers
        self._shared = shared

    def descriptor_at(self, number: int) -> base.ReceivedFile:
        return base.ReceivedFile(self._shared[number])

    def storage_from(self, kind: str, where: int, length: int) -> torch.UntypedStorage:
        if kind == "shared":
            # Closed at once: there may be as many as this process can have open.
            fd, self._shared[where] = self._shared[where], -1
            try:
                return storage_of_descriptor(fd, length)
            finally:
                os.close(fd)
        if not length:
            return torch.UntypedStorage(0, device="cpu")
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
