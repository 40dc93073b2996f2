"""Any batch at all → a pickle of its structure, and the regions of memory that belong to it.

The structure is pickled with protocol 5; in place of the bytes of a tensor it has a call of `tensor_at` that names a
region. There is one region per storage, as large as what the tensors of the batch use of it: so tensors that shared
memory share it again on the other side, and a view into a large dataset does not carry the dataset along. Nothing large
is ever inside the pickle.
"""

from __future__ import annotations

import copyreg
import inspect
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch

from antifreeze.engine.arena import shared
from antifreeze.engine.arena.layout import CODES, is_dense, is_plain

try:
    import numpy as np
except ImportError:  # torch works without it
    np = None  # type: ignore[assignment]

# complex128, the largest that torch has
LARGEST_ITEM = 16
# numpy copies so many bytes out of a pickle; of more, an array is made that shows the pickle's.
OWNED_UP_TO = 1000


def tensor_at(code: int, region: int, start: int, length: int, *shape: int) -> NoReturn:
    """A dense tensor: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def strided_at(
    code: int, region: int, start: int, length: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> NoReturn:
    """A strided tensor: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def leaf_at(
    code: int, region: int, start: int, length: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> NoReturn:
    """A tensor that requires grad: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def storage_at(region: int, length: int) -> NoReturn:
    """A storage: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def shared_at(number: int) -> NoReturn:
    """A storage whose descriptor is sent: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def typed_storage(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    """The typed face of a storage, as torch's own reduction of unusual tensors asks for it."""
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def rebuild_new_dtype(storage: torch.UntypedStorage, *rest: Any) -> torch.Tensor:
    """Dtypes too new for typed storages: torch's reduction sends a bare one, and its rebuilding wants a typed one."""
    typed = torch.TypedStorage(wrap_storage=storage, dtype=torch.uint8, _internal=True)
    return torch._utils._rebuild_tensor_v3(typed, *rest)  # type: ignore[no-any-return]


class Region:
    """The part of one storage that a batch uses; addresses are this process's."""

    __slots__ = ("base", "high", "low", "number")

    def __init__(self, number: int, base: int, low: int, high: int) -> None:
        self.number = number
        self.base = base
        self.low = low
        self.high = high


class Pickled:
    """One batch, pickled: its structure, and where its bytes are now. It keeps alive what these bytes belong to."""

    def __init__(self) -> None:
        self.structure = b""
        self.regions: dict[int, Region] = {}
        self.buffers: list[int] = []
        """(region, length) of the out-of-band buffers, one after the other."""
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.shared: dict[int, int] = {}
        """Descriptors of storages that go as they are, in the order in which they are sent."""
        self.kept: list[Any] = []

    def use(self, owner: int, base: int, address: int, length: int) -> int:
        """The number of the region of this storage, which begins at `base`, grown to hold these bytes too."""
        slack = (address - base) % LARGEST_ITEM  # every tensor must begin a whole number of its items into the region
        address, length = address - slack, length + slack
        region = self.regions.get(owner)
        if region is None:
            region = self.regions[owner] = Region(len(self.regions), base, address, address + length)
        else:
            region.low = min(region.low, address)
            region.high = max(region.high, address + length)
        return region.number


def _reduce_array(array: Any) -> Any:
    # Out of band an array stays as it is; in torch's pickles, which are older, one that is unusual becomes usual, and a
    # small one owns its memory.
    flags = array.flags
    is_usual = array.dtype.isnative and flags.aligned and flags.writeable and (flags.c_contiguous or flags.f_contiguous)
    return array.__reduce_ex__(5) if is_usual and array.nbytes > OWNED_UP_TO else array.__reduce__()


def _reducers_of_the_user() -> dict[type, Callable[..., Any]]:
    """Those registered with multiprocessing, which torch's workers use too; its own, and torch's, are not for us."""
    return {
        kind: reducer
        for kind, reducer in ForkingPickler._extra_reducers.items()  # type: ignore[attr-defined]
        if not str(getattr(reducer, "__module__", "")).startswith(("torch.", "multiprocessing."))
    }


def _with_reducers(
    pickler: type[pickle.Pickler], reducers: dict[type, Callable[..., Any]], others: Any
) -> type[pickle.Pickler]:
    """A kind of pickler that asks these reducers first; it must be of the class, for pickle looks when it is made."""
    return type(pickler.__name__, (pickler,), {"dispatch_table": ChainMap(reducers, others)})


class BatchPickler:
    """Pickles one batch after the other: with plain pickle, and with another pickler from the first that needs it."""

    def __init__(self, fallback: type[pickle.Pickler]) -> None:
        reducers: dict[type, Callable[..., Any]] = {
            torch.Tensor: self._reduce_tensor,
            torch.UntypedStorage: self._reduce_storage,
            torch.TypedStorage: self._reduce_typed_storage,
        }
        if np is not None:
            reducers[np.ndarray] = _reduce_array
        reducers = {**_reducers_of_the_user(), **reducers}
        self._plain = _with_reducers(pickle.Pickler, reducers, copyreg.dispatch_table)
        self._fallback = _with_reducers(fallback, reducers, fallback.dispatch_table)
        self._pickler = self._plain
        self._batch = Pickled()

    def dump(self, batch: Any) -> Pickled:
        """The batch as a pickle and regions; whatever the classes in it raise passes through."""
        try:
            return self._dump_with(self._pickler, batch)
        except RecursionError:
            # torch pickles in a thread of its own, whose stack begins there: what is not too deep for it is not for us.
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(limit + len(inspect.stack(0)))
            try:
                return self._dump_with(self._pickler, batch)
            finally:
                sys.setrecursionlimit(limit)
        except Exception:  # whatever a user's __reduce__ raises; the second attempt reports what is really wrong
            if self._pickler is self._fallback:
                raise
        pickled = self._dump_with(self._fallback, batch)
        self._pickler = self._fallback  # the next batch will need it too
        return pickled

    def new_pickler(self) -> pickle.Pickler:
        """A pickler like the one that takes every batch: to be asked for its reducers."""
        return self._fallback(io.BytesIO(), 5)

    def _dump_with(self, kind: type[pickle.Pickler], batch: Any) -> Pickled:
        self._batch = pickled = Pickled()
        try:
            stream = io.BytesIO()
            pickler = kind(stream, 5, buffer_callback=self._take_buffer)
            pickler.dump(batch)
            pickled.kept.append(pickler)  # its memo holds what user classes made only for the pickle
            pickled.structure = stream.getvalue()
            return pickled
        finally:
            self._batch = Pickled()

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Out-of-band buffers of arrays and of user classes."""
        raw = buffer.raw()
        if raw.nbytes == 0 or raw.readonly:
            return True  # stays in the pickle, which keeps read-only memory read-only on the other side
        address = torch.frombuffer(raw, dtype=torch.uint8).data_ptr()
        self._batch.kept.append(buffer)
        # Each is an owner of its own, even of memory that a tensor or another buffer shows, too: so it is in torch.
        region = self._batch.use(-len(self._batch.kept), address, address, raw.nbytes)
        self._batch.buffers.extend((region, raw.nbytes))
        return False

    def _reduce_tensor(self, tensor: torch.Tensor) -> Any:
        if not is_plain(tensor) or self._number_if_shared(tensor.untyped_storage()) is not None:
            return tensor.__reduce_ex__(5)
        dtype, shape, length = tensor.dtype, tensor.shape, tensor.nbytes
        region = start = 0
        if length:
            address = tensor.data_ptr()
            start = int(tensor.storage_offset()) * dtype.itemsize
            if not tensor.is_contiguous():
                steps = zip(shape, tensor.stride(), strict=True)
                length = dtype.itemsize * (1 + sum((n - 1) * step for n, step in steps))
            region = self._batch.use(tensor.untyped_storage()._cdata, address - start, address, length)
        if is_dense(tensor) and not tensor.requires_grad:
            return tensor_at, (CODES[dtype], region, start, length, *shape)
        kind = leaf_at if tensor.requires_grad else strided_at
        return kind, (CODES[dtype], region, start, length, tuple(shape), tensor.stride())

    def _reduce_storage(self, storage: torch.UntypedStorage) -> Any:
        length = storage.nbytes()
        if not length:
            return storage_at, (0, 0)
        number = self._number_if_shared(storage)
        if number is not None:
            return shared_at, (number,)
        base = storage.data_ptr()
        return storage_at, (self._batch.use(storage._cdata, base, base, length), length)

    def _number_if_shared(self, storage: torch.UntypedStorage) -> int | None:
        """The place among the descriptors of a storage that goes as it is; None: its bytes go."""
        sent = self._batch.shared
        key = storage._cdata
        if key not in sent:
            fd = shared.descriptor_of(storage) if len(sent) < shared.MOST_SHARED else None
            if fd is None:
                return None
            sent[key] = fd
            self._batch.storages.setdefault(key, storage)
        return list(sent).index(key)

    def _reduce_typed_storage(self, storage: torch.TypedStorage) -> Any:
        untyped = storage._untyped_storage
        if untyped.device.type != "cpu":
            return storage.__reduce_ex__(5)
        # Every tensor wraps its storage anew; pickle must see one object per storage to keep tensors on it together.
        untyped = self._batch.storages.setdefault(untyped._cdata, untyped)
        return typed_storage, (untyped, storage.dtype)
