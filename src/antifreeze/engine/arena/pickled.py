"""Any batch at all → a pickle of its structure, and the regions of memory that belong to it.

The structure is pickled with protocol 5; in place of the bytes of a tensor it has a call of `tensor_at` that names a
region. There is one region per storage, as large as what the tensors of the batch use of it: so tensors that shared
memory share it again on the other side, and a view into a large dataset does not carry the dataset along. Views from
here and there in it do not carry along what lies between them: such a region falls into parts, each for itself in
memory. Nor does a column of a large matrix bring the matrix: it arrives dense. Nothing large is ever inside the pickle.
"""

from __future__ import annotations

import copyreg
import inspect
import io
import math
import pickle
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch

from antifreeze.engine.arena import shared
from antifreeze.engine.arena.layout import CODES, is_dense, is_plain
from antifreeze.torch_side.tensors import storage_key, strided_subclass, typed_storage, untyped_of

try:
    import numpy as np
except ImportError:  # torch works without it
    np = None  # type: ignore[assignment]

# complex128, the largest that torch has
LARGEST_ITEM = 16
# Of what lies between the tensors on a storage, so much is copied along, to keep them on one; and as much as they have.
MOST_BETWEEN = 256 << 10
# A tensor whose elements lie far apart (a column of a large matrix) arrives without what is between them if that is more,
# and so many times as much as they are.
MOST_WITHIN = 4 << 20
SPARSE = 8
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


def itself(thing: Any) -> Any:
    """Where torch's reduction of a subclass has a function that makes the plain tensor, and the tensor is there."""
    return thing


class Region:
    """The part of one storage that a batch uses; addresses are this process's."""

    __slots__ = ("base", "high", "low", "number", "spans")

    def __init__(self, number: int, base: int, low: int, high: int) -> None:
        self.number = number
        self.base = base
        self.low = low
        self.high = high
        self.spans: list[tuple[int, int]] = []
        """What each tensor uses, if there are several."""

    def grow(self, low: int, high: int) -> None:
        """Another tensor uses these bytes."""
        if not self.spans:
            self.spans.append((self.low, self.high))
        self.spans.append((low, high))
        self.low = min(self.low, low)
        self.high = max(self.high, high)

    def has(self, low: int, high: int) -> bool:
        """Whether one tensor alone uses all of these bytes."""
        return any(begin <= low and high <= end for begin, end in self.spans or [(self.low, self.high)])

    def parts(self) -> list[tuple[int, int]]:
        """From where to where: all of it, unless most of it is not used; tensors that overlap are in one part."""
        whole = [(self.low, self.high)]
        if self.high - self.low <= MOST_BETWEEN:
            return whole
        parts: list[tuple[int, int]] = []
        for low, high in sorted(self.spans):
            if parts and low <= parts[-1][1]:
                parts[-1] = parts[-1][0], max(high, parts[-1][1])
            else:
                parts.append((low, high))
        used = sum(high - low for low, high in parts)
        return parts if self.high - self.low - used > max(used, MOST_BETWEEN) else whole


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
        self.dense: dict[Any, torch.Tensor] = {}
        """Copies of tensors whose elements lie far apart, each by what it shows of which storage."""
        self.scattered: list[tuple[int, int, int]] = []
        """Where those tensors lie: (storage, from, to)."""

    def use(self, owner: int, base: int, address: int, length: int) -> int:
        """The number of the region of this storage, which begins at `base`, grown to hold these bytes too."""
        slack = (address - base) % LARGEST_ITEM  # every tensor must begin a whole number of its items into the region
        address, length = address - slack, length + slack
        region = self.regions.get(owner)
        if region is None:
            region = self.regions[owner] = Region(len(self.regions), base, address, address + length)
        else:
            region.grow(address, address + length)
        return region.number

    def has(self, owner: int, low: int, high: int) -> bool:
        """Whether one tensor alone uses all of these bytes of this storage."""
        region = self.regions.get(owner)
        return region is not None and region.has(low, high)


def _extent(dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """How many bytes there are from the first element to the end of the last."""
    return dtype.itemsize * (1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)))


def _reduce_array(array: Any) -> Any:
    # Out of band an array stays as it is; in torch's pickles, which are older, one that is unusual becomes usual, and a
    # small one owns its memory.
    flags = array.flags
    is_usual = array.dtype.isnative and flags.aligned and flags.writeable and (flags.c_contiguous or flags.f_contiguous)
    return array.__reduce_ex__(5) if is_usual and array.nbytes > OWNED_UP_TO else array.__reduce__()


def _is_for_us(kind: type, reducer: Callable[..., Any]) -> bool:
    """Whether something registered with multiprocessing is, which torch's workers use too.

    torch's own are not: they move memory. Of Python's own, those of sockets and connections are, which send a descriptor;
    what plain pickle makes of a connection is its number, and another file has that in the trainer.
    """
    module = str(getattr(reducer, "__module__", ""))
    if module.startswith("multiprocessing."):
        return kind.__module__ in ("socket", "multiprocessing.connection")
    return not module.startswith("torch.")


class _Reducers(dict[type, Callable[[Any], Any]]):
    """What to pickle each class with; then what others say, what was registered since, and subclasses of tensors."""

    def __init__(
        self, known: dict[type, Callable[[Any], Any]], others: Any, reduce_subclass: Callable[[torch.Tensor], Any]
    ) -> None:
        super().__init__(known)
        self._others = others
        self._reduce_subclass = reduce_subclass

    def __missing__(self, kind: type) -> Any:
        if kind in self._others:
            return self._others[kind]
        reducer = ForkingPickler._extra_reducers.get(kind)  # type: ignore[attr-defined]
        if reducer is not None and _is_for_us(kind, reducer):
            return reducer
        if torch.Tensor in kind.__mro__:
            return self._reduce_subclass
        raise KeyError(kind)

    def get(self, kind: type, default: Any = None) -> Any:
        """As for any mapping; a dict's own does not ask `__missing__`."""
        try:
            return self[kind]
        except KeyError:
            return default


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
        registered = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        reducers = {kind: each for kind, each in registered.items() if _is_for_us(kind, each)} | reducers
        self._plain = self._with_reducers(pickle.Pickler, reducers, copyreg.dispatch_table)
        self._fallback = self._with_reducers(fallback, reducers, fallback.dispatch_table)
        self._pickler = self._plain
        self._batch = Pickled()
        self._before: Pickled | None = None
        """The same batch, if it is pickled once more."""

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

    def _with_reducers(
        self, pickler: type[pickle.Pickler], reducers: dict[type, Callable[..., Any]], others: Any
    ) -> type[pickle.Pickler]:
        """A kind of pickler that asks these reducers first; it must be of the class, for pickle looks when it is made."""
        table = _Reducers(reducers, others, self._reduce_subclass)
        return type(pickler.__name__, (pickler,), {"dispatch_table": table})

    def _dump_with(self, kind: type[pickle.Pickler], batch: Any) -> Pickled:
        pickled = self._dump_once(kind, batch)
        if not pickled.scattered or not any(pickled.has(*place) for place in pickled.scattered):
            return pickled
        # The matrix came after its column, and goes along: then they share its memory, as if it had come first.
        self._before = pickled
        try:
            return self._dump_once(kind, batch)
        finally:
            self._before = None

    def _dump_once(self, kind: type[pickle.Pickler], batch: Any) -> Pickled:
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
                used, length = length, _extent(dtype, shape, tensor.stride())
                if length > SPARSE * used + MOST_WITHIN and not self._is_sent(tensor, address, length):
                    self._batch.scattered.append((storage_key(tensor.untyped_storage()), address, address + length))
                    return self._reduce_tensor(self._dense_copy(tensor))
            region = self._batch.use(storage_key(tensor.untyped_storage()), address - start, address, length)
        if is_dense(tensor) and not tensor.requires_grad:
            return tensor_at, (CODES[dtype], region, start, length, *shape)
        kind = leaf_at if tensor.requires_grad else strided_at
        return kind, (CODES[dtype], region, start, length, tuple(shape), tensor.stride())

    def _is_sent(self, tensor: torch.Tensor, address: int, length: int) -> bool:
        """Whether all that a tensor lies in goes along anyway."""
        place = storage_key(tensor.untyped_storage()), address, address + length
        return self._batch.has(*place) or (self._before is not None and self._before.has(*place))

    def _dense_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        known = storage_key(storage), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
        dense = self._batch.dense.get(known)
        if dense is None:
            dense = self._batch.dense[known] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            dense.copy_(tensor.detach())
        return dense.detach().requires_grad_() if tensor.requires_grad else dense

    def _reduce_subclass(self, tensor: torch.Tensor) -> Any:
        """As its class has it; but of a storage that it shows little of, no more goes along than of a plain tensor's."""
        reduced = tensor.__reduce_ex__(5)
        strided = strided_subclass(reduced)
        if strided is None:
            return reduced
        storage, dtype, start, shape, strides = strided
        if storage.device.type != "cpu" or not all(shape):
            return reduced
        used = dtype.itemsize * math.prod(shape)
        if storage.nbytes() - used <= max(used, MOST_BETWEEN):
            return reduced
        plain = torch.empty(0, dtype=dtype, device="cpu").set_(storage, start, shape, strides)
        rebuild, (_, kind, _, state) = reduced
        return rebuild, (itself, kind, (plain,), state)

    def _reduce_storage(self, storage: torch.UntypedStorage) -> Any:
        length = storage.nbytes()
        if not length:
            return storage_at, (0, 0)
        number = self._number_if_shared(storage)
        if number is not None:
            return shared_at, (number,)
        base = storage.data_ptr()
        return storage_at, (self._batch.use(storage_key(storage), base, base, length), length)

    def _number_if_shared(self, storage: torch.UntypedStorage) -> int | None:
        """The place among the descriptors of a storage that goes as it is; None: its bytes go."""
        sent = self._batch.shared
        key = storage_key(storage)
        if key not in sent:
            fd = shared.descriptor_of(storage) if len(sent) < shared.MOST_SHARED else None
            if fd is None:
                return None
            sent[key] = fd
            self._batch.storages.setdefault(key, storage)
        return list(sent).index(key)

    def _reduce_typed_storage(self, storage: torch.TypedStorage) -> Any:
        untyped = untyped_of(storage)
        if untyped.device.type != "cpu":
            return storage.__reduce_ex__(5)
        # Every tensor wraps its storage anew; pickle must see one object per storage to keep tensors on it together.
        untyped = self._batch.storages.setdefault(storage_key(untyped), untyped)
        return typed_storage, (untyped, storage.dtype)
