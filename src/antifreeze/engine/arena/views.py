"""A slot → the batch in it: the trainer's side of `layout`.

Small tensors are copied out, so that a label that somebody keeps does not pin a slot; large ones are laid over the
slot's memory without a copy, if the arena lends it. Everything that points into the slot keeps its *owner* alive.

Arrays, and buffers of user classes, are always copied out: a child that the trainer forks later shares what is lent. So
it is with torch's tensors; but what the child writes into an array must not change the trainer's, nor the other way round.
"""

from __future__ import annotations

import array
import bisect
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.layout import ALIGNMENT, COPY_BELOW, DTYPES, Parcel, is_small_part
from antifreeze.engine.arena.segment import Owner, Segment
from antifreeze.engine.arena.tensors import storage_over
from antifreeze.torch_side.tensors import REBUILT_OTHERWISE, validate_sparse_tensors

Shared = Sequence[torch.UntypedStorage] | Exception
"""Storages that a batch came with, or why they could not be mapped."""

_STAND_INS = "antifreeze.engine.arena.pickled"

Lend = Callable[[], Owner | None]
Find = Callable[[Any], Any]


def read_batch(
    segment: Segment, parcel: Parcel, form: Form | None, *, lend: Lend, find: Find, shared: Shared = ()
) -> Any:
    """The batch in a slot; `find` gives the trainer's object behind a reference in it."""
    view = segment.view
    structure = view[parcel.offset : parcel.offset + parcel.structure_bytes + parcel.table_bytes]
    if form is None:
        # A batch that is small altogether is copied in one piece.
        block = bytearray(view[: parcel.offset]) if 0 < parcel.offset < COPY_BELOW else None
        return _unpickle(structure, parcel, _SlotMemory(view, lend, block, shared), find)
    values = pickle.loads(structure) if parcel.structure_bytes else []
    if form.extent < COPY_BELOW:
        return form.over(bytearray(view[: form.extent]), values)
    return form.within(view, lend() if form.has_large else None, values)


def read_letter(body: bytearray, parcel: Parcel, form: Form | None, find: Find, shared: Shared = ()) -> Any:
    """The batch that came in a message: its memory is the user's from now on."""
    if form is not None:
        return form.over(body, pickle.loads(memoryview(body)[parcel.offset :]) if parcel.structure_bytes else [])
    view = memoryview(body)
    return _unpickle(view[parcel.offset :], parcel, _SlotMemory(view, lambda: None, body, shared), find)


def _unpickle(structure: memoryview, parcel: Parcel, slot: _SlotMemory, find: Find) -> Any:
    slot.table = array.array("q", bytes(structure[parcel.structure_bytes :]))
    batch = _BatchUnpickler(io.BytesIO(structure), slot, find).load()
    validate_sparse_tensors()  # torch keeps them, and so the slot, until they have been looked at
    return batch


class _BatchUnpickler(pickle.Unpickler):
    def __init__(self, structure: io.BytesIO, memory: _SlotMemory, find: Find) -> None:
        super().__init__(structure, buffers=memory.buffers())
        self._memory = memory
        self._find = find

    def find_class(self, module: str, name: str) -> Any:
        """Globals of the pickle; the stand-ins of `pickled` become methods of the slot's memory.

        (Not of this object: pickle keeps what it finds, and the cycle would keep the slot until the next collection.)
        """
        if module == _STAND_INS and name != "itself":
            return getattr(self._memory, name)
        return REBUILT_OTHERWISE.get((module, name)) or super().find_class(module, name)

    def persistent_load(self, reference: Any) -> Any:
        """An object of the trainer that came back by reference."""
        return self._find(reference)


class _SlotMemory:
    """The regions of one batch, lent or copied."""

    def __init__(self, view: memoryview, lend: Lend, block: bytearray | None, shared: Shared) -> None:
        self._shared = shared
        self.table: array.array[int] = array.array("q")
        self._view = view
        self._block = block
        self._lend: Lend | None = lend
        self._owner: Owner | None = None
        self._copied: dict[int, bytearray] = {}
        self._storages: dict[int, tuple[torch.UntypedStorage, int]] = {}
        self._begins: dict[int, array.array[int]] = {}
        """Of regions in parts: how far into the worker's storage each part begins."""

    def buffers(self) -> Iterator[memoryview] | None:
        """The out-of-band buffers of the pickle, in its order."""
        described = self.table[1 + 3 * self.table[0] :]
        return map(self._bytes_of, described[::2], described[1::2]) if described else None

    def tensor_at(self, code: int, region: int, start: int, length: int, *shape: int) -> torch.Tensor:
        """A dense tensor."""
        return self.strided_at(code, region, start, length, shape, ())

    def strided_at(
        self, code: int, region: int, start: int, length: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> torch.Tensor:
        """A tensor with gaps or overlaps, or (without strides) none.

        Not a view, as torch's is not; and on the same storage as any other tensor of this region, as in torch.
        """
        dtype = DTYPES[code]
        if length:
            storage, low = self._storage_of(self._part_of(region, start))
            tensor = torch.empty(0, dtype=dtype, device="cpu")
            return tensor.set_(storage, (start - low) // dtype.itemsize, shape, strides)
        if strides:
            return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
        return torch.empty(shape, dtype=dtype, device="cpu")

    def leaf_at(
        self, code: int, region: int, start: int, length: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> torch.Tensor:
        """A tensor that requires grad; what it was computed from stays in the worker."""
        return self.strided_at(code, region, start, length, shape, strides).requires_grad_()

    def storage_at(self, region: int, length: int) -> torch.UntypedStorage:
        """The storage under an unusual tensor."""
        return self._storage_of(region)[0] if length else torch.UntypedStorage(0, device="cpu")

    def shared_at(self, number: int) -> torch.UntypedStorage:
        """The storage of a tensor that was shared on purpose."""
        if isinstance(self._shared, Exception):
            raise self._shared
        return self._shared[number]

    def _part_of(self, region: int, start: int) -> int:
        """The part of a region that a tensor lies in which begins so far into the worker's storage; mostly all of it."""
        first = -self.table[1 + 3 * region]
        if first <= 0:
            return region
        begins = self._begins.get(region)
        if begins is None:
            end = first + self.table[2 + 3 * region]
            begins = self._begins[region] = self.table[2 + 3 * first : 2 + 3 * end : 3]
        return first + bisect.bisect_right(begins, start) - 1

    def _storage_of(self, region: int) -> tuple[torch.UntypedStorage, int]:
        """(storage, how far into the worker's storage it begins): one for all tensors of a region."""
        known = self._storages.get(region)
        if known is None:
            buffer, offset = self._memory_of(region)
            low, length = self.table[2 + 3 * region : 4 + 3 * region]
            known = self._storages[region] = storage_over(buffer, offset + low, length), low
        return known

    def _bytes_of(self, region: int, length: int) -> memoryview:
        """The first bytes of a buffer; never lent."""
        buffer, offset = self._copy_of(region) if self._block is None else self._memory_of(region)
        return memoryview(buffer).cast("B")[offset : offset + length]

    def _memory_of(self, region: int) -> tuple[Any, int]:
        """(buffer, where the region's storage would begin in it): lent if it is large and the arena agrees, else copied."""
        place = 1 + 3 * region
        offset, low, length = self.table[place : place + 3]
        if self._block is not None and not is_small_part(length, len(self._block)):
            return self._block, offset - low
        if length >= COPY_BELOW:
            if self._lend is not None:
                self._owner, self._lend = self._lend(), None
            if self._owner is not None:
                return self._owner, offset - low
        return self._copy_of(region)

    def _copy_of(self, region: int) -> tuple[bytearray, int]:
        """(buffer, where the region's storage would begin in it)."""
        offset, low, length = self.table[1 + 3 * region : 4 + 3 * region]
        beyond = offset % ALIGNMENT  # kept in the copy, so that every tensor in it stays aligned
        copy = self._copied.get(region)
        if copy is None:
            copy = self._copied[region] = bytearray(self._view[offset - beyond : offset + length])
        return copy, beyond - low
