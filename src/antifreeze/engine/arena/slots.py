"""The life of a slot, as a table, and the books about all slots of an arena: pure.

A slot is *leased* to one worker, which may write into it; *filled* when it holds a whole batch; *lent* while objects of
the user point into it; *free* otherwise. Nobody may write into a slot that is filled or lent, and nobody may read a
slot that is leased: the table has no move that would allow it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from antifreeze.engine.numbers import SeatNo, SlotNo
from antifreeze.errors import InternalError


class State(Enum):
    """Where a slot is in its life."""

    FREE = auto()
    LEASED = auto()
    FILLED = auto()
    LENT = auto()
    SHARED = auto()
    CONDEMNED = auto()
    GONE = auto()


class Event(Enum):
    """What can happen to a slot."""

    LEASE = auto()
    FILL = auto()
    RETURN = auto()
    OUTGROW = auto()
    LOSE_WRITER = auto()
    CONFIRM_DEATH = auto()
    LEND = auto()
    DISCARD = auto()
    RELEASE = auto()
    FORK = auto()
    RETIRE = auto()


MOVES: dict[tuple[State, Event], State] = {
    (State.FREE, Event.LEASE): State.LEASED,  # a worker may write into it
    (State.FREE, Event.RETIRE): State.GONE,  # too many, or the arena closes
    (State.LEASED, Event.FILL): State.FILLED,  # holds a whole batch
    (State.LEASED, Event.RETURN): State.FREE,  # the worker had nothing to put into it
    (State.LEASED, Event.OUTGROW): State.GONE,  # too small: the worker made a larger one instead
    (State.LEASED, Event.LOSE_WRITER): State.CONDEMNED,  # the writer may still be alive, so nobody may touch it
    (State.CONDEMNED, Event.CONFIRM_DEATH): State.FREE,
    (State.FILLED, Event.LEND): State.LENT,  # the user's tensors point into it
    (State.FILLED, Event.DISCARD): State.FREE,  # copied out, or no longer wanted
    (State.LENT, Event.RELEASE): State.FREE,  # the last tensor died
    (State.LENT, Event.FORK): State.SHARED,  # a child of the trainer sees the same memory: never write into it again
    (State.SHARED, Event.FORK): State.SHARED,
    (State.SHARED, Event.RELEASE): State.GONE,
}


_WITH_THE_USER = (State.LENT, State.SHARED)


@dataclass(slots=True)
class _Entry:
    state: State
    size: int
    homes: set[SeatNo]


class SlotBooks:
    """Who has which slot, how many there may be, and which one to lease next."""

    def __init__(self) -> None:
        self._entries: dict[SlotNo, _Entry] = {}
        self._free: list[SlotNo] = []
        self._forgettable: defaultdict[SeatNo, list[SlotNo]] = defaultdict(list)
        self._next = 0
        self._lent = 0
        self.total_bytes = 0
        self.lent_bytes = 0
        """Of the slots that the user's tensors point into."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def lent(self) -> int:
        """How many slots the user's tensors point into."""
        return self._lent

    @property
    def has_free(self) -> bool:
        """Whether any slot is free."""
        return bool(self._free)

    @property
    def in_use(self) -> int:
        """How many slots are not free."""
        return len(self._entries) - len(self._free)

    @property
    def coldest_free(self) -> SlotNo:
        """The slot that has been free for the longest time; only if one is free."""
        return self._free[0]

    def state(self, slot: SlotNo) -> State:
        """The state of a slot; slots that are gone are forgotten."""
        entry = self._entries.get(slot)
        return entry.state if entry else State.GONE

    def adopt(self, size: int) -> SlotNo:
        """A worker made this slot and filled it; it is ours from now on."""
        slot = SlotNo(self._next)
        self._next += 1
        self._entries[slot] = _Entry(State.FILLED, size, set())
        self.total_bytes += size
        return slot

    def choose_free(self, worker: SeatNo) -> SlotNo | None:
        """The free slot that suits this worker best: one it has mapped already, the warmest first."""
        for slot in reversed(self._free):
            if worker in self._entries[slot].homes:
                return slot
        return self._free[-1] if self._free else None

    def is_home(self, slot: SlotNo, worker: SeatNo) -> bool:
        """Whether this worker has the slot mapped already."""
        return worker in self._entries[slot].homes

    def add_home(self, slot: SlotNo, worker: SeatNo) -> None:
        """This worker has been sent the slot's memory."""
        self._entries[slot].homes.add(worker)

    def remove_home(self, slot: SlotNo, worker: SeatNo) -> None:
        """This worker has not been sent the slot's memory after all."""
        self._entries[slot].homes.discard(worker)

    def put_back_forgettable(self, worker: SeatNo, slots: tuple[SlotNo, ...]) -> None:
        """This worker has not been told of these slots after all."""
        if slots:
            self._forgettable[worker][:0] = slots

    def take_forgettable(self, worker: SeatNo) -> tuple[SlotNo, ...]:
        """Slots that are gone since this was last asked, and whose memory this worker still has."""
        return tuple(self._forgettable.pop(worker)) if worker in self._forgettable else ()

    def forget_worker(self, worker: SeatNo) -> None:
        """A worker is gone, and its mappings with it."""
        self._forgettable.pop(worker, None)
        for entry in self._entries.values():
            entry.homes.discard(worker)

    def slots_in(self, *states: State) -> list[SlotNo]:
        """All slots in one of these states."""
        return [slot for slot, entry in list(self._entries.items()) if entry.state in states]

    def move(self, slot: SlotNo, event: Event) -> State:
        """Apply an event; anything that is not in the table is a bug of ours."""
        entry = self._entries.get(slot)
        before = entry.state if entry else State.GONE
        after = MOVES.get((before, event))
        if entry is None or after is None:
            raise InternalError(f"slot {slot} is {before.name} and cannot {event.name}")
        entry.state = after
        self._keep_books(slot, before, after)
        return after

    def move_all(self, slots: Iterable[SlotNo], event: Event) -> None:
        """Apply one event to several slots."""
        for slot in slots:
            self.move(slot, event)

    def _keep_books(self, slot: SlotNo, before: State, after: State) -> None:
        if before is State.FREE:
            self._free.remove(slot)
        if after is State.FREE:
            self._free.append(slot)
        change = (after in _WITH_THE_USER) - (before in _WITH_THE_USER)
        if change:
            self._lent += change
            self.lent_bytes += change * self._entries[slot].size
        if after is State.GONE:
            entry = self._entries.pop(slot)
            self.total_bytes -= entry.size
            for worker in entry.homes:
                self._forgettable[worker].append(slot)


def slots_that_fit(*, budget_bytes: int, slot_bytes: int) -> int:
    """How many slots of this size the budget allows; never less than one."""
    return max(1, budget_bytes // max(1, slot_bytes))


def split_slots(*, allowed: int, window: int, spare: int) -> tuple[int, int]:
    """(window, spare) for this many slots: the window comes first, but one slot to lend is worth more than the third."""
    if allowed >= window + spare:
        return window, spare
    lendable = min(spare, 1) if allowed >= 3 else 0
    fits = max(1, min(window, allowed - lendable))
    return fits, max(lendable, min(spare, allowed - fits))
