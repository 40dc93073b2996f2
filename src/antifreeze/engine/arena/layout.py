"""How a batch lies in a slot, and the worker's side of it: writing.

    | tensors and arrays, each at a multiple of 64 bytes | pickle of the structure | table of out-of-band buffers |

The structure is pickled with protocol 5; in place of the bytes of a tensor it has a call of `tensor_at` with the place
where they lie. Nothing large is ever inside the pickle. Offsets are given out while pickling, and the bytes are copied
afterwards, when it is known whether the batch fits; a tensor that was collated straight into the slot stays where it is.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.segment import Segment

ALIGNMENT = 64
# Room to grow, as a share of the batch: the next batch is rarely of exactly the same size.
SLACK = 8

DTYPES: tuple[torch.dtype, ...] = tuple(
    sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
)
"""All dtypes of this torch in an order that both sides agree on."""
_CODE = {dtype: code for code, dtype in enumerate(DTYPES)}


def tensor_at(code: int, offset: int, length: int, *shape: int) -> NoReturn:
    """A dense tensor: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def strided_at(code: int, offset: int, length: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> NoReturn:
    """A strided tensor: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def storage_at(offset: int, length: int) -> NoReturn:
    """A storage: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def typed_storage(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    """The typed face of a storage, as torch's own reduction of unusual tensors asks for it."""
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


@dataclass(frozen=True, slots=True)
class Parcel:
    """Where the structure of a batch lies in its slot."""

    offset: int
    structure_bytes: int
    table_bytes: int


def _with_reducers(
    pickler: type[pickle.Pickler], reducers: dict[type, Callable[..., Any]], others: Any
) -> type[pickle.Pickler]:
    """A kind of pickler that asks these reducers first; it must be of the class, for pickle looks when it is made."""
    return type(pickler.__name__, (pickler,), {"dispatch_table": ChainMap(reducers, others)})


class SlotWriter:
    """Writes one batch after the other, each into the slot it was given or into a larger one that it makes."""

    def __init__(self, fallback_pickler: type[pickle.Pickler]) -> None:
        reducers: dict[type, Callable[..., Any]] = {
            torch.Tensor: self._reduce_tensor,
            torch.UntypedStorage: self._reduce_storage,
            torch.TypedStorage: self._reduce_typed_storage,
        }
        self._plain = _with_reducers(pickle.Pickler, reducers, copyreg.dispatch_table)
        self._fallback = _with_reducers(fallback_pickler, reducers, fallback_pickler.dispatch_table)
        self._pickler = self._plain
        self._segment: Segment | None = None
        self._low = self._high = 0
        self._used = 0
        self._largest = 0
        self._reset()

    def begin(self, segment: Segment | None) -> None:
        """From now on, write into this slot; None: make one."""
        if segment is None and self._largest:
            segment = memory.create(self._largest)
        self._segment = segment
        self._low, self._high = (segment.address, segment.address + segment.size) if segment else (0, 0)
        self._used = 0
        self._reset()

    def room(self, shape: tuple[int, ...], dtype: torch.dtype, length: int) -> torch.Tensor | None:
        """An empty tensor inside the slot, to be collated into; None if it does not fit."""
        if self._segment is None or self._used + length > self._segment.size:
            return None
        flat = torch.frombuffer(
            self._segment.owner(), dtype=dtype, count=length // dtype.itemsize, offset=self._place(length)
        )
        return flat.view(shape)

    def write(self, batch: Any) -> tuple[Segment, Parcel]:
        """Put the batch into the slot; the segment returned is another one than was given if it did not fit."""
        structure = self._pickle(batch)
        table = pickle.dumps(self._buffers_at, 5) if self._buffers_at else b""
        needed = self._used + len(structure) + len(table)
        target = self._segment if self._segment and needed <= self._segment.size else self._larger(needed)
        for offset, address, length, _ in self._copies:
            target.copy_in(offset, address, length)
        parcel = Parcel(self._used, len(structure), len(table))
        target.write(self._used, structure + table)
        self._segment = None
        self._reset()
        return target, parcel

    def _reset(self) -> None:
        self._copies: list[tuple[int, int, int, Any]] = []
        self._buffers_at: list[tuple[int, int]] = []
        self._places: dict[tuple[int, int], int] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def _larger(self, needed: int) -> Segment:
        self._largest = max(self._largest, needed + needed // SLACK)
        larger = memory.create(self._largest)
        if self._segment and self._used:
            larger.copy_in(0, self._segment.address, min(self._used, self._segment.size))
        return larger

    def _pickle(self, batch: Any) -> bytes:
        used = self._used
        try:
            return self._pickle_with(self._pickler, batch)
        except Exception:  # whatever a user's __reduce__ raises; the second attempt reports what is really wrong
            if self._pickler is self._fallback:
                raise
            self._used = used
            self._reset()
            structure = self._pickle_with(self._fallback, batch)
            self._pickler = self._fallback  # the next batch will need it too
            return structure

    def _pickle_with(self, pickler: type[pickle.Pickler], batch: Any) -> bytes:
        stream = io.BytesIO()
        pickler(stream, 5, buffer_callback=self._take_buffer).dump(batch)
        return stream.getvalue()

    def _place(self, length: int) -> int:
        offset = self._used
        self._used = (offset + length + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return offset

    def _put(self, address: int, length: int, keep_alive: Any) -> int:
        """The offset at which these bytes of this process will lie."""
        if self._low <= address < self._high:
            return address - self._low
        offset = self._places.get((address, length))
        if offset is None:
            offset = self._places[address, length] = self._place(length)
            self._copies.append((offset, address, length, keep_alive))
        return offset

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Out-of-band buffers of arrays and of user classes."""
        raw = buffer.raw()
        if raw.nbytes == 0:
            return True
        array = torch.frombuffer(raw, dtype=torch.uint8) if not raw.readonly else None
        if array is None:
            return True  # read-only memory: stays in the pickle, which keeps it read-only on the other side
        self._buffers_at.append((self._put(array.data_ptr(), raw.nbytes, array), raw.nbytes))
        return False

    def _reduce_tensor(self, tensor: torch.Tensor) -> Any:
        if (
            tensor.layout is not torch.strided
            or tensor.requires_grad
            or tensor.device.type != "cpu"
            or tensor.is_quantized
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor.__dict__
        ):
            return tensor.__reduce_ex__(5)
        shape = tensor.shape
        code = _CODE[tensor.dtype]
        if tensor.is_contiguous():
            length = tensor.nbytes
            offset = self._put(tensor.data_ptr(), length, tensor) if length else 0
            return tensor_at, (code, offset, length, *shape)
        strides = tensor.stride()
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        length = span * tensor.element_size()
        offset = self._put(tensor.data_ptr(), length, tensor)
        return strided_at, (code, offset, length, tuple(shape), strides)

    def _reduce_storage(self, storage: torch.UntypedStorage) -> Any:
        if storage.device.type != "cpu":
            return storage.__reduce_ex__(5)
        length = storage.nbytes()
        return storage_at, (self._put(storage.data_ptr(), length, storage) if length else 0, length)

    def _reduce_typed_storage(self, storage: torch.TypedStorage) -> Any:
        untyped = storage._untyped_storage
        # Every tensor wraps its storage anew; pickle must see one object per storage to keep tensors on it together.
        untyped = self._storages.setdefault(untyped.data_ptr(), untyped) if untyped.nbytes() else untyped
        return typed_storage, (untyped, storage.dtype)
