"""How a batch lies in a slot, and the worker's side of it: writing.

    | regions: the bytes of tensors and arrays, each at a multiple of 64 | pickle of the structure | table of regions |

The structure is pickled with protocol 5; in place of the bytes of a tensor it has a call of `tensor_at` that names a
region. There is one region per storage, as large as what the tensors of the batch use of it: so tensors that shared
memory share it again on the other side, and a view into a large dataset does not carry the dataset along. Nothing large
is ever inside the pickle. Regions get their place when the whole batch is known; one that was collated straight into
the slot stays where it is.
"""

from __future__ import annotations

import array
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

_dispatch_keys = torch._C._dispatch_keys
# What a dense tensor on the CPU has; every other kind (sparse, nested, quantized, conjugated …) has another set.
with torch.inference_mode(False):
    _PLAIN = _dispatch_keys(torch.empty(0, device="cpu")).raw_repr()


def tensor_at(code: int, region: int, start: int, length: int, *shape: int) -> NoReturn:
    """A dense tensor: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def strided_at(
    code: int, region: int, start: int, length: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> NoReturn:
    """A strided tensor: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def storage_at(region: int, length: int) -> NoReturn:
    """A storage: stands in the pickle; the reader puts its own method in its place."""
    raise NotImplementedError


def typed_storage(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    """The typed face of a storage, as torch's own reduction of unusual tensors asks for it."""
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


@dataclass(frozen=True, slots=True)
class Parcel:
    """Where the structure of a batch lies in its slot, and the table of its regions behind it."""

    offset: int
    structure_bytes: int
    table_bytes: int


class _Region:
    """The part of one storage that a batch uses; addresses are this process's."""

    __slots__ = ("base", "high", "low", "number")

    def __init__(self, number: int, base: int, low: int, high: int) -> None:
        self.number = number
        self.base = base
        self.low = low
        self.high = high


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
        self._made: Segment | None = None
        """Memory made for a batch that did not come about, or is about to."""
        self._used = 0
        self._largest = 0
        self._reset()

    def begin(self, segment: Segment | None) -> None:
        """From now on, write into this slot; None: make one."""
        if segment is not None:
            self._let_go_of_made()
        elif self._largest:
            segment = self._made = self._made or memory.create(self._largest)
        self._segment = segment
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
        structure, pickler = self._pickle(batch)  # the pickler holds what user classes made while it ran
        table, copies = self._place_regions()
        needed = self._used + len(structure) + len(table)
        target = self._segment if self._segment and needed <= self._segment.size else self._larger(needed)
        for offset, address, length in copies:
            target.copy_in(offset, address, length)
        target.write(self._used, structure + table)
        del pickler
        parcel = Parcel(self._used, len(structure), len(table))
        if target is self._made:
            self._made = None  # it leaves with the batch
        self._segment = None
        self._reset()
        return target, parcel

    def _reset(self) -> None:
        self._regions: dict[int, _Region] = {}
        self._buffers: list[int] = []
        self._kept: list[pickle.PickleBuffer] = []
        self._storages: dict[int, torch.UntypedStorage] = {}

    def _place_regions(self) -> tuple[bytes, list[tuple[int, int, int]]]:
        """The table of regions, and what has to be copied where: (offset, address, length)."""
        table = array.array("q", (len(self._regions),))
        copies = []
        low, high = (self._segment.address, self._segment.address + self._segment.size) if self._segment else (0, 0)
        for region in self._regions.values():
            length = region.high - region.low
            if low <= region.low < high:
                offset = region.low - low
            else:
                # As far from a multiple of 64 as it is here: then every tensor in it stays aligned.
                offset = self._place(length + region.low % ALIGNMENT) + region.low % ALIGNMENT
                copies.append((offset, region.low, length))
            table.extend((offset, region.low - region.base, length))
        table.extend(self._buffers)
        return table.tobytes(), copies

    def _larger(self, needed: int) -> Segment:
        self._largest = max(self._largest, needed + needed // SLACK)
        larger = memory.create(self._largest)
        self._let_go_of_made()
        self._made = larger
        if self._segment and self._used:
            larger.copy_in(0, self._segment.address, min(self._used, self._segment.size))
        return larger

    def _let_go_of_made(self) -> None:
        if self._made is not None:
            self._made.close_descriptor()
            self._made = None

    def _pickle(self, batch: Any) -> tuple[bytes, pickle.Pickler]:
        used = self._used
        try:
            return self._pickle_with(self._pickler, batch)
        except Exception:  # whatever a user's __reduce__ raises; the second attempt reports what is really wrong
            if self._pickler is self._fallback:
                raise
            self._used = used
            self._reset()
            pickled = self._pickle_with(self._fallback, batch)
            self._pickler = self._fallback  # the next batch will need it too
            return pickled

    def _pickle_with(self, kind: type[pickle.Pickler], batch: Any) -> tuple[bytes, pickle.Pickler]:
        stream = io.BytesIO()
        pickler = kind(stream, 5, buffer_callback=self._take_buffer)
        pickler.dump(batch)
        return stream.getvalue(), pickler

    def _place(self, length: int) -> int:
        offset = self._used
        self._used = (offset + length + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return offset

    def _use(self, base: int, address: int, length: int) -> int:
        """The number of the region of the storage at `base`, grown to hold these bytes too."""
        region = self._regions.get(base)
        if region is None:
            region = self._regions[base] = _Region(len(self._regions), base, address, address + length)
        else:
            region.low = min(region.low, address)
            region.high = max(region.high, address + length)
        return region.number

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Out-of-band buffers of arrays and of user classes."""
        raw = buffer.raw()
        if raw.nbytes == 0 or raw.readonly:
            return True  # stays in the pickle, which keeps read-only memory read-only on the other side
        address = torch.frombuffer(raw, dtype=torch.uint8).data_ptr()
        self._kept.append(buffer)
        self._buffers.extend((self._use(address, address, raw.nbytes), raw.nbytes))
        return False

    def _reduce_tensor(self, tensor: torch.Tensor) -> Any:
        if _dispatch_keys(tensor).raw_repr() != _PLAIN or tensor.requires_grad:
            return tensor.__reduce_ex__(5)
        dtype = tensor.dtype
        shape = tensor.shape
        length = tensor.nbytes
        if not length:
            return tensor_at, (_CODE[dtype], 0, 0, 0, *shape)
        address = tensor.data_ptr()
        start = int(tensor.storage_offset()) * dtype.itemsize
        if tensor.is_contiguous():
            return tensor_at, (_CODE[dtype], self._use(address - start, address, length), start, length, *shape)
        strides = tensor.stride()
        length = dtype.itemsize * (1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)))
        region = self._use(address - start, address, length)
        return strided_at, (_CODE[dtype], region, start, length, tuple(shape), strides)

    def _reduce_storage(self, storage: torch.UntypedStorage) -> Any:
        length = storage.nbytes()
        if not length:
            return storage_at, (0, 0)
        base = storage.data_ptr()
        return storage_at, (self._use(base, base, length), length)

    def _reduce_typed_storage(self, storage: torch.TypedStorage) -> Any:
        untyped = storage._untyped_storage
        if untyped.device.type != "cpu":
            return storage.__reduce_ex__(5)
        # Every tensor wraps its storage anew; pickle must see one object per storage to keep tensors on it together.
        untyped = self._storages.setdefault(untyped._cdata, untyped)
        return typed_storage, (untyped, storage.dtype)
