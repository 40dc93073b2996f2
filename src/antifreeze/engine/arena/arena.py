"""The trainer's side of the shared memory: slots are adopted, leased, opened, lent and taken back here.

Workers make slots (only they know how large a batch is); the arena adopts them within its budget. A slot is lent to the
user only while the budget has room for the whole window beside it; any further batch is copied out. So the loader never
waits for the user to let go of a batch, and memory stays bounded however many batches the user keeps.

How large a batch is, and how many slots are in use at once, is what it was lately: one large batch, or one slow one, does
not decide how the rest of the data are loaded.

Release is lock-free and may come from any thread, from the garbage collector, or never: a weak reference to the slot's
owner is appended to a deque when it dies, and looked at before the next lease.
"""

from __future__ import annotations

import os
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from antifreeze import machine
from antifreeze.engine import forks
from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.layout import Parcel
from antifreeze.engine.arena.recent import RecentMaximum
from antifreeze.engine.arena.segment import CHUNK, Owner, Segment, slot_bytes_for
from antifreeze.engine.arena.slots import Event, SlotBooks, State, slots_that_fit, split_slots
from antifreeze.engine.arena.views import Shared, read_batch
from antifreeze.engine.numbers import SeatNo, SlotNo

# A loop holds the batch it works on while it asks for the next; a prefetcher or a logger holds one or two more. So many
# are lent at the expense of the window; more, as long as there is room beside it.
SPARE = 3
# Each of them takes a descriptor and a mapping; steps that gradients are accumulated over are rarely more.
MOST_LENT = 64
# So many batches, at the least, decide how large batches are, and so many slots that become free, how many are needed.
SIZE_SPAN, USE_SPAN = 32, 64
# A free slot this many times as large as batches are is worth less than its memory.
OUTSIZE = 4

# Slots with a descriptor of their own take at most this share of what the program may have open.
DESCRIPTOR_SHARE = 4

# A worker whose last batches, this many, were all small enough for a message gets no slot until one is not.
LETTERS_IN_A_ROW = 8

_arenas: weakref.WeakSet[Arena] = weakref.WeakSet()


class _Tag(weakref.ref[Owner]):
    """A weak reference to the owner of a lent slot that knows which slot it was."""

    __slots__ = ("forks", "slot")
    slot: SlotNo
    forks: int
    """How many forks there had been when the slot was lent."""


class Lease(NamedTuple):
    """Where a worker may put its next batch."""

    slot: SlotNo | None
    """None: into memory of its own making."""
    size: int
    descriptor: int | None
    """To be sent along, when the worker has not got the slot's memory yet."""
    forget: tuple[SlotNo, ...]
    """Slots that are gone, and whose memory the worker still has."""


class Arena:
    """All slots of one iterator."""

    def __init__(self, *, window: int, budget_bytes: int) -> None:
        self._window = window
        self._spare = SPARE
        self._wanted_window = window
        self._batch_bytes = RecentMaximum(SIZE_SPAN)
        """The slots that the last batches would have needed."""
        self._in_use = RecentMaximum(USE_SPAN)
        self._budget_bytes = budget_bytes
        self._most_descriptors = machine.descriptor_limit() // DESCRIPTOR_SHARE
        self._books = SlotBooks()
        self._segments: dict[SlotNo, Segment] = {}
        self._tags: dict[SlotNo, _Tag] = {}
        self._released: deque[_Tag] = deque()
        self._forms: dict[tuple[SeatNo, int], Form] = {}
        self._letters: defaultdict[SeatNo, int] = defaultdict(int)
        _arenas.add(self)
        forks.start_counting()
        forks.call_in_children(_in_child)

    @property
    def window(self) -> int:
        """How many batches may be under way, given what the slots turned out to need."""
        return self._window

    @property
    def budget_bytes(self) -> int:
        """How much memory the slots may take together."""
        return self._budget_bytes

    @property
    def batch_bytes(self) -> int:
        """How large a slot has to be for the batches of late."""
        return self._batch_bytes.value

    @property
    def has_free(self) -> bool:
        """Whether any slot is free."""
        return self._books.has_free

    @property
    def has_room_for_another(self) -> bool:
        """Whether one batch more than the window may be made, as far as can be known before it is."""
        fits = self._books.total_bytes + self.batch_bytes <= self._budget_bytes
        return fits and len(self._books) < self._most_descriptors

    def lease(self, worker: SeatNo) -> Lease:
        """A place for one batch of this worker."""
        if self._released:
            self._collect()
        books = self._books
        forget = books.take_forgettable(worker)
        slot = books.choose_free(worker) if self._letters[worker] < LETTERS_IN_A_ROW else None
        if slot is None:
            return Lease(None, 0, None, forget)
        books.move(slot, Event.LEASE)
        segment = self._segments[slot]
        if books.is_home(slot, worker):
            return Lease(slot, segment.size, None, forget)
        books.add_home(slot, worker)
        return Lease(slot, segment.size, segment.fd, forget)

    def undo(self, lease: Lease, worker: SeatNo) -> None:
        """The worker has never heard of this lease."""
        self._books.put_back_forgettable(worker, lease.forget)
        if lease.slot is not None:
            if lease.descriptor is not None:
                self._books.remove_home(lease.slot, worker)
            self.hand_back(lease.slot)

    def hand_back(self, slot: SlotNo) -> None:
        """The worker had nothing to put into this slot."""
        self._books.move(slot, Event.RETURN)
        self._trim(slot)

    def form_of(self, worker: SeatNo, number: int, definition: bytes) -> Form | None:
        """The form that the worker calls by this number, which it defines when it first does; None: it has none."""
        if definition:
            self._forms[worker, number] = Form(definition)
        return self._forms[worker, number] if number else None

    def fill(self, slot: SlotNo, worker: SeatNo, *, used_bytes: int) -> None:
        """The worker has put a whole batch of this size into this slot."""
        self._letters[worker] = 0
        self._books.move(slot, Event.FILL)
        self._note_batch(used_bytes)

    def pass_over(self, slot: SlotNo | None, worker: SeatNo) -> None:
        """The worker's batch was so small that it came in the message; whatever slot it was given is free."""
        self._letters[worker] += 1
        if slot is not None:
            self.hand_back(slot)

    def adopt(self, fd: int, size: int, worker: SeatNo, *, used_bytes: int, instead_of: SlotNo | None) -> SlotNo:
        """The worker has made this memory, and filled it, because what it was given was too small or nothing at all."""
        self._letters[worker] = 0
        try:
            segment = Segment(fd, size)
        except BaseException:  # no memory to map it into
            os.close(fd)
            raise
        if instead_of is not None:
            self._drop(instead_of, Event.OUTGROW)
        slot = self._books.adopt(size)
        self._segments[slot] = segment
        if len(self._books) > self._most_descriptors or machine.is_nearly_out_of_descriptors(fd):
            segment.close_descriptor()  # enough to read what is in it; it cannot be leased again
        self._note_batch(used_bytes)
        return slot

    def _note_batch(self, used_bytes: int) -> None:
        before = self._batch_bytes.value
        if (
            self._batch_bytes.note(slot_bytes_for(used_bytes)) != before
            or self._window < self._wanted_window
            or self._books.lent > SPARE
        ):
            self._fit_window()

    def _fit_window(self) -> None:
        """Have as many batches under way as the budget allows beside what is lent (of which it always allows a few)."""
        slot_bytes = self.batch_bytes
        beyond = max(0, self._books.lent_bytes - SPARE * slot_bytes)
        allowed = slots_that_fit(budget_bytes=self._budget_bytes - beyond, slot_bytes=slot_bytes)
        self._window, self._spare = split_slots(allowed=allowed, window=self._wanted_window, spare=SPARE)

    def open(
        self,
        slot: SlotNo,
        parcel: Parcel,
        form: Form | None,
        find: Callable[[Any], Any],
        shared: Shared = (),
        *,
        for_now: bool = False,
    ) -> Any:
        """The batch in a filled slot; afterwards the slot is lent, or free again.

        `for_now`: only until the batch has been copied elsewhere, so that as many can be lent as are under way.
        """
        segment = self._segments[slot]
        most = self._spare + self._window if for_now else self._spare
        try:
            lend = partial(self._lend, slot, segment, most)
            return read_batch(segment, parcel, form, lend=lend, find=find, shared=shared)
        finally:
            if self._books.state(slot) is State.FILLED:
                self.discard(slot)

    def discard(self, slot: SlotNo) -> None:
        """Nobody wants what is in this slot (any more)."""
        self._books.move(slot, Event.DISCARD)
        self._trim(slot)

    def lose_writer(self, slot: SlotNo) -> None:
        """The worker that this slot is leased to is lost, but perhaps not dead."""
        self._books.move(slot, Event.LOSE_WRITER)

    def confirm_death(self, slot: SlotNo) -> None:
        """The lost worker is dead: it will not write any more."""
        self._books.move(slot, Event.CONFIRM_DEATH)
        self._trim(slot)

    def forget_worker(self, worker: SeatNo) -> None:
        """A worker is gone; the next of its number knows nothing of slots and forms."""
        self._books.forget_worker(worker)
        self._letters.pop(worker, None)
        for key in [key for key in self._forms if key[0] == worker]:
            del self._forms[key]

    def give_back_free(self) -> None:
        """Memory is short: let go of all that is free, now, and not when its workers hear of it."""
        self._collect()
        for slot in self._books.slots_in(State.FREE):
            self._segments[slot].give_memory_back()
            self._drop(slot, Event.RETIRE)

    def close(self) -> None:
        """Let go of everything; memory that the user's tensors point into lives as long as they do."""
        for segment in self._segments.values():
            segment.close_descriptor()
        self._segments.clear()
        self._tags.clear()
        self._released.clear()
        _arenas.discard(self)

    def _lend(self, slot: SlotNo, segment: Segment, most: int) -> Owner | None:
        if self._books.lent >= most:
            self._collect()
            if self._books.lent >= most and not self._has_room_beside_window(segment.size):
                return None
        owner = segment.owner()
        tag = _Tag(owner, self._released.append)
        tag.slot = slot
        tag.forks = forks.count()
        self._tags[slot] = tag
        self._books.move(slot, Event.LEND)
        return owner

    def _collect(self) -> None:
        """Take back the slots whose last tensor has died since we last looked."""
        while True:
            try:
                tag = self._released.popleft()
            except IndexError:  # another thread looks, too
                return
            slot = tag.slot
            self._tags.pop(slot, None)
            if self._books.state(slot) is State.GONE:
                continue
            if tag.forks != forks.count():  # a child of the trainer may see what was in it: never write into it again
                self._books.move(slot, Event.FORK)
            if self._books.move(slot, Event.RELEASE) is State.GONE:
                self._segments.pop(slot).close_descriptor()
            else:
                self._trim(slot)

    def _has_room_beside_window(self, size: int) -> bool:
        """Whether a slot of this size can be lent, and the window be as large as it is meant to be."""
        books = self._books
        if books.lent >= MOST_LENT or len(books) > self._most_descriptors:
            return False
        return books.lent_bytes + size + self._wanted_window * self.batch_bytes <= self._budget_bytes

    def _trim(self, slot: SlotNo) -> None:
        """A slot has become free: keep it if it is of use, and as many free ones as are used lately."""
        books, segment = self._books, self._segments[slot]
        most = max(self._window + self._spare, self._in_use.note(books.in_use + 1))
        if segment.fd < 0 or segment.size > OUTSIZE * max(self.batch_bytes, CHUNK):
            self._drop(slot, Event.RETIRE)
        while books.has_free and len(books) > 1 and (len(books) > most or books.total_bytes > self._budget_bytes):
            self._drop(books.coldest_free, Event.RETIRE)

    def _drop(self, slot: SlotNo, event: Event) -> None:
        self._books.move(slot, event)
        self._segments.pop(slot).close_descriptor()

    def __repr__(self) -> str:
        return (
            f"<Arena {len(self._books)} slots, {self._books.lent} lent, "
            f"{self._books.total_bytes >> 20} of {self._budget_bytes >> 20} MB>"
        )


def _in_child() -> None:
    # The child has no business with the trainer's slots: descriptors go, memory that batches point into stays.
    for arena in list(_arenas):
        arena.close()
