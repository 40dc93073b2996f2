"""A slot → the batch in it: the trainer's side of `layout`.

Small tensors are copied out, so that a label that somebody keeps does not pin a slot; large ones are laid over the
slot's memory without a copy, if the arena lends it. Everything that points into the slot keeps its *owner* alive.
"""

from __future__ import annotations

import ctypes
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch

from antifreeze.engine.arena.layout import DTYPES, Parcel
from antifreeze.engine.arena.segment import Segment

# Seen: labels of 3 KB that a user kept held 384 MB of slots. Copying 64 KiB costs about 5 µs.
COPY_BELOW = 64 << 10

_LAYOUT = "antifreeze.engine.arena.layout"

Owner = ctypes.Array[ctypes.c_char]


def read_batch(
    segment: Segment, parcel: Parcel, *, lend: Callable[[], Owner | None], find: Callable[[int], Any]
) -> Any:
    """The batch that a parcel describes; `find` gives the trainer's object of a number in it."""
    memory = _SlotMemory(segment, lend)
    structure = io.BytesIO(segment.read(parcel.offset, parcel.structure_bytes))
    buffers = None
    if parcel.table_bytes:
        table = segment.read(parcel.offset + parcel.structure_bytes, parcel.table_bytes)
        buffers = map(memory.bytes_at, pickle.loads(table))
    return _BatchUnpickler(structure, buffers, memory, find).load()


class _BatchUnpickler(pickle.Unpickler):
    def __init__(
        self, structure: io.BytesIO, buffers: Any, memory: _SlotMemory, find: Callable[[int], Any]
    ) -> None:
        super().__init__(structure, buffers=buffers)
        self._memory = memory
        self._find = find

    def find_class(self, module: str, name: str) -> Any:
        """Globals of the pickle; the stand-ins of `layout` become methods of the slot's memory.

        (Not of this object: pickle keeps what it finds, and the cycle would keep the slot until the next collection.)
        """
        if module == _LAYOUT and name != "typed_storage":
            return getattr(self._memory, name)
        return super().find_class(module, name)

    def persistent_load(self, number: int) -> Any:
        """An object of the trainer that a clean worker sent back by reference."""
        return self._find(number)


class _SlotMemory:
    """The bytes of one slot, lent or copied."""

    def __init__(self, segment: Segment, lend: Callable[[], Owner | None]) -> None:
        self._segment = segment
        self._lend: Callable[[], Owner | None] | None = lend
        self._owner: Owner | None = None
        self._copied: dict[int, bytearray] = {}

    def bytes_at(self, place: tuple[int, int]) -> memoryview:
        """Some bytes, as an out-of-band buffer of pickle."""
        buffer, start = self._place(*place)
        return memoryview(buffer).cast("B")[start : start + place[1]]

    def tensor_at(self, code: int, offset: int, length: int, *shape: int) -> torch.Tensor:
        """A dense tensor."""
        dtype = DTYPES[code]
        if not length:
            return torch.empty(shape, dtype=dtype)
        buffer, start = self._place(offset, length)
        flat = torch.frombuffer(buffer, dtype=dtype, count=length // dtype.itemsize, offset=start)
        return flat if len(shape) == 1 else flat.view(shape)

    def strided_at(
        self, code: int, offset: int, length: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> torch.Tensor:
        """A tensor with gaps or overlaps."""
        return self.tensor_at(code, offset, length, length // DTYPES[code].itemsize).as_strided(shape, strides)

    def storage_at(self, offset: int, length: int) -> torch.UntypedStorage:
        """The storage under an unusual tensor."""
        if not length:
            return torch.UntypedStorage(0)
        return torch.frombuffer(self.bytes_at((offset, length)), dtype=torch.uint8).untyped_storage()

    def _place(self, offset: int, length: int) -> tuple[Any, int]:
        """(buffer, offset in it) of some bytes: lent if they are many and the arena agrees, else a copy."""
        if length >= COPY_BELOW:
            if self._lend is not None:
                self._owner, self._lend = self._lend(), None
            if self._owner is not None:
                return self._owner, offset
        copy = self._copied.get(offset)
        if copy is None or len(copy) < length:
            copy = self._copied[offset] = bytearray(self._segment.read(offset, length))
        return copy, 0
