"""The worker's side of `layout`: a batch → the slot it was given, a larger one, or the message itself.

A tensor that was collated straight into the slot stays where it is; everything else gets its place, and is copied
there, when the whole batch is known.
"""

from __future__ import annotations

import array
import ctypes
import operator
import os
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from antifreeze.engine.arena import forms
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.forms import Sketch, Spec
from antifreeze.engine.arena.layout import ALIGNMENT, Parcel, aligned, is_dense, is_plain
from antifreeze.engine.arena.pickled import BatchPickler, Pickled
from antifreeze.engine.arena.recent import RecentMaximum
from antifreeze.engine.arena.segment import Segment
from antifreeze.engine.arena.tensors import tensor_over

# A batch up to this size goes into the message: it costs less than a slot does, and leaves room for the rest of it.
ENCLOSE_UP_TO = 3 << 10
# A slot that a worker makes is large enough for its last batches, of which there are at least so many.
SPAN = 16
# Kept by both sides for as long as the worker lives: so many, with so many tensors in all.
MOST_FORMS = 256
MOST_TENSORS_OF_FORMS = 1 << 16
# Batches whose shapes are never the same must not take the places of those that come again; of them only a number is kept.
MOST_MET = 1 << 14

Copy = tuple[int, int, int]
"""What to copy where: offset, address, length."""


class Grant(NamedTuple):
    """Room that was given out in a desk, for so many samples of one kind."""

    samples: int
    dtype: torch.dtype
    shape: torch.Size
    """Of one sample."""
    tensor: torch.Tensor
    spec: Spec
    end: int


class Regular(NamedTuple):
    """A batch that was collated into a desk as a whole, and has a form: the next one is most likely like it."""

    skeleton: Any
    tensors: list[torch.Tensor]
    number: int

    def is_like(self, sketch: Sketch) -> bool:
        """Whether this batch has the same skeleton, and the very same tensors."""
        return (
            len(self.tensors) == len(sketch.tensors)
            and all(map(operator.is_, self.tensors, sketch.tensors))
            and self.skeleton == sketch.skeleton
        )


class Desk:
    """Memory that a worker lays out batches in: a slot, or memory of its own for small ones."""

    __slots__ = ("address", "buffer", "grants", "last", "segment", "size", "view")

    def __init__(self, segment: Segment | None = None) -> None:
        self.segment = segment
        self.buffer: Any = segment.owner() if segment else bytearray(memory.CHUNK)
        self.view = memoryview(self.buffer).cast("B")
        self.address = segment.address if segment else ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))
        self.size = self.view.nbytes
        self.grants: list[Grant] = []
        """What was given out for the last batch, in order: the next one most likely asks for the same."""
        self.last: Regular | None = None


class Written(NamedTuple):
    """A batch that is ready to be reported."""

    parcel: Parcel
    definition: bytes
    """Of its form, if this is the first batch that refers to it."""
    body: bytearray | None
    """The batch itself, if it is small; else it is in the slot."""
    made: Segment | None
    """The slot, if it is another one than was given: it leaves with the batch."""
    shared: tuple[int, ...] = ()
    """Descriptors of memory that was shared on purpose, to be sent along and then closed."""


class SlotWriter:
    """Writes one batch after the other."""

    def __init__(
        self, fallback_pickler: type[pickle.Pickler], create: Callable[[int], Segment] = memory.create
    ) -> None:
        """`create` makes the memory for a slot."""
        self._create = create
        self._pickler = BatchPickler(fallback_pickler)
        self._own_desk = Desk()
        self._desk = self._own_desk
        self._made: Desk | None = None
        """Made for a batch that did not come about, or is about to."""
        self._used = 0
        self._slot_bytes = RecentMaximum(SPAN)
        """What its last batches would have needed."""
        self._granted = 0
        self._forms: dict[Any, int] = {}
        """Forms by their number."""
        self._tensors_of_forms = 0
        self._met: set[int] = set()
        """The hashes of forms that were met once."""

    def begin(self, desk: Desk | None) -> None:
        """From now on, write into this slot; None: there is none."""
        if desk is not None:
            self._let_go_of_made()
        self._desk = desk or self._own_desk
        self._used = self._granted = 0

    def room(self, count: int, first: torch.Tensor) -> torch.Tensor | None:
        """A tensor inside the slot for so many samples like the first, to be collated into; None if it does not fit."""
        grants = self._desk.grants
        if self._granted < len(grants):
            grant = grants[self._granted]
            if grant.samples == count and grant.dtype is first.dtype and grant.shape == first.shape:
                self._granted += 1
                self._used = grant.end
                return grant.tensor
        return self._grant(count, first)

    def _grant(self, count: int, first: torch.Tensor) -> torch.Tensor | None:
        offset, length = self._used, count * first.nbytes
        if not length:
            return None
        if offset + length > self._desk.size:
            if offset or length > self._slot_bytes.value:
                return None
            self._desk = self._make(self._slot_bytes.value)
        desk, spec = self._desk, (first.dtype, (count, *first.shape), offset)
        tensor = tensor_over(desk.buffer, *spec)
        self._used = aligned(offset + length)
        desk.last = None
        desk.grants[self._granted :] = [Grant(count, first.dtype, first.shape, tensor, spec, self._used)]
        self._granted += 1
        return tensor

    def write(self, batch: Any) -> Written:
        """Put the batch into its place."""
        sketch = forms.sketch(batch)
        written = self._write_form(sketch) if sketch is not None else None
        if written is None:
            written = self._write_pickled(self._pickler.dump(batch))
        self._desk = self._own_desk
        return written

    def _write_form(self, sketch: Sketch) -> Written | None:
        """The batch by the number of its form; None: this one, or this time, it has to be pickled."""
        last = self._desk.last
        if last is not None and self._granted == len(last.tensors) and last.is_like(sketch):
            values = _values(sketch)
            return self._finish(Parcel(last.number, self._used, len(values), 0), [], values, b"")
        collated = {id(grant.tensor): grant.spec for grant in self._desk.grants[: self._granted]}
        used, specs, copies = self._used, [], []
        addresses = set()
        for tensor in sketch.tensors:
            spec = collated.pop(id(tensor), None)  # popped: the same tensor in a second place is not regular
            if spec is None:
                if not _is_regular(tensor):
                    return None
                length, address = tensor.nbytes, tensor.data_ptr()
                if address in addresses or 0 <= address - self._desk.address < self._desk.size:
                    return None  # two tensors on one storage
                addresses.add(address)
                spec = tensor.dtype, tensor.shape, used
                copies.append((used, address, length))
                used = aligned(used + length)
            specs.append(spec)
        form = sketch.skeleton, tuple(specs)
        number = self._forms.get(form)
        if number is None and not self._is_to_be_defined(form):
            return None
        values = _values(sketch)
        self._used = used
        if number is not None:
            if not copies and not collated:
                self._desk.last = Regular(sketch.skeleton, sketch.tensors, number)
            return self._finish(Parcel(number, used, len(values), 0), copies, values, b"")
        number = len(self._forms) + 1
        written = self._finish(Parcel(number, used, len(values), 0), copies, values, forms.define(*form))
        self._forms[form] = number  # not before: what has failed has defined nothing
        self._tensors_of_forms += len(specs)
        return written

    def _is_to_be_defined(self, form: tuple[Any, tuple[Spec, ...]]) -> bool:
        """Whether this form has been met before, and there is room for it."""
        if len(self._forms) == MOST_FORMS or self._tensors_of_forms + len(form[1]) > MOST_TENSORS_OF_FORMS:
            return False
        known = hash(form)
        if known in self._met:
            return True
        if len(self._met) < MOST_MET:
            self._met.add(known)
        return False

    def _write_pickled(self, pickled: Pickled) -> Written:
        table, copies = self._place_regions(pickled)
        parcel = Parcel(0, self._used, len(pickled.structure), len(table))
        written = self._finish(parcel, copies, pickled.structure + table, b"")
        return written._replace(shared=tuple(map(os.dup, pickled.shared.values()))) if pickled.shared else written

    def _place_regions(self, pickled: Pickled) -> tuple[bytes, list[Copy]]:
        """The table of regions, and what has to be copied."""
        table = array.array("q", (0,))
        further = array.array("q")
        copies: list[Copy] = []
        low, high = self._desk.address, self._desk.address + self._desk.size
        count = len(pickled.regions)
        for region in pickled.regions.values():
            if low <= region.low < high:
                table.extend((region.low - low, region.low - region.base, region.high - region.low))
                continue
            parts = region.parts() if region.spans else [(region.low, region.high)]
            entries = table
            if len(parts) > 1:  # they follow all regions; here stands where, and how many
                table.extend((-(count + len(further) // 3), len(parts), 0))
                entries = further
            for begin, end in parts:
                # As far from a multiple of 64 as it is here: then every tensor in it stays aligned.
                offset = self._used + begin % ALIGNMENT
                self._used = aligned(offset + end - begin)
                copies.append((offset, begin, end - begin))
                entries.extend((offset, begin - region.base, end - begin))
        table.extend(further)
        table[0] = len(table) // 3
        table.extend(pickled.buffers)
        return table.tobytes(), copies

    def _finish(self, parcel: Parcel, copies: list[Copy], tail: bytes, definition: bytes) -> Written:
        needed = self._used + len(tail)
        is_small = needed <= ENCLOSE_UP_TO
        if not is_small:
            self._slot_bytes.note(memory.slot_bytes_for(needed))
            if self._desk.segment is None or needed > self._desk.size:
                self._move_to_larger()
        desk = self._desk
        for offset, address, length in copies:
            ctypes.memmove(desk.address + offset, address, length)
        if is_small:
            return Written(parcel, definition, bytearray().join((desk.view[: self._used], tail)), None)
        desk.view[self._used : needed] = tail
        if desk is not self._made:
            return Written(parcel, definition, None, None)
        self._made = None
        return Written(parcel, definition, None, desk.segment)

    def _move_to_larger(self) -> None:
        before, size = self._desk, self._slot_bytes.value
        larger = Desk(self._create(size)) if before is self._made else self._make(size)
        kept = min(self._used, before.size)
        larger.view[:kept] = before.view[:kept]
        if larger is not self._made:
            self._let_go_of_made()
        self._made = self._desk = larger

    def _make(self, size: int) -> Desk:
        """Memory of at least this size, to be a slot."""
        if self._made is None or self._made.size < size:
            made = Desk(self._create(size))
            self._let_go_of_made()
            self._made = made
        return self._made

    def _let_go_of_made(self) -> None:
        if self._made is not None and self._made.segment is not None:
            self._made.segment.close_descriptor()
        self._made = None


def _values(sketch: Sketch) -> bytes:
    return pickle.dumps(sketch.values, 5) if sketch.values else b""


def _is_regular(tensor: torch.Tensor) -> bool:
    """Whether bytes, dtype and shape are all there is to this tensor, and it is the first on its storage."""
    if not is_plain(tensor) or tensor.requires_grad or tensor.storage_offset() or not tensor.numel():
        return False
    return is_dense(tensor) and not tensor.untyped_storage().is_shared()
