"""A worker's board: what it is doing now, how long it has taken, which locks it holds, what its generators were like a
moment ago, and its last words, in memory that survives it.

The worker writes, the trainer and the stem read, at any time. What it is doing (its *pulse*) is three words, written
before every sample. The snapshots take turns in two places: while one is being written the other is whole, whenever the
worker is killed. Text comes after everything else and makes the board longer: Python stacks, written by signal handlers,
which can do no more than write into a descriptor.

::

    bytes 0 .. 31     pulse
    .. 63             notices
    .. 127            times: sums, and the longest
    .. 927            the slowest samples
    .. 1023           locks
    1 KiB ..          first snapshot
    64 KiB ..         second snapshot
    128 KiB ..        text
"""

from __future__ import annotations

import os
from enum import IntEnum
from typing import NamedTuple

from antifreeze import machine
from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.segment import Segment
from antifreeze.engine.numbers import TicketNo

SIZE = 128 << 10
_PULSE_WORDS = 4
_NOTICE_WORDS = 4
_PLACES = (1 << 10, SIZE // 2)
_HEAD_WORDS = 3
_ROOM = SIZE // 2 - (1 << 10) - 8 * _HEAD_WORDS
_TIME_WORDS = 8
_TIMES = _PULSE_WORDS + _NOTICE_WORDS
_SLOWEST = 8 * (_TIMES + _TIME_WORDS)
_NAME_BYTES = 56
_ROW_BYTES = 3 * 8 + _NAME_BYTES
SLOWEST = 10
"""How many of the slowest samples are remembered."""
_LOCKS = _SLOWEST + SLOWEST * _ROW_BYTES
# Stacks of a hundred threads, the most that Python writes, take about a megabyte; a loop of crashes takes no more of us.
MOST_TEXT = 1 << 20


class Step(IntEnum):
    """What a worker is at."""

    STARTING = 0
    IDLE = 1
    FETCHING = 2
    COLLATING = 3
    WRITING = 4
    WAITING = 5
    """For shared memory, of which there is none at the moment."""


class Pulse(NamedTuple):
    """What a worker was doing when it was last seen."""

    step: Step
    ticket: TicketNo | None
    position: int
    """Which sample of the batch, counted from 0; -1: none of them, or all (`__getitems__`)."""


class Slow(NamedTuple):
    """One of the slowest samples of a worker, or a batch of which only the whole was timed."""

    ns: int
    ticket: TicketNo
    position: int
    """Which sample of the batch, counted from 0; -1: the whole batch."""
    asked: str
    """What the dataset was asked for, as `repr` shows it, cut short."""


class Timing(NamedTuple):
    """Where a worker's time has gone so far."""

    fetch_ns: int
    collate_ns: int
    transfer_ns: int
    samples: int
    batches: int
    longest_fetch_ns: int
    """The longest time between two ticks of the pulse while fetching: a sample, or a batch where only that was timed."""
    longest_collate_ns: int
    slowest: tuple[Slow, ...]
    """The slowest first."""


class Noticed(NamedTuple):
    """What a worker has noticed about the way its dataset is used."""

    has_asked: bool
    """Whether the dataset, or worker_init_fn, has asked which worker this is."""
    first_items: int
    """A checksum of the first few items of its stream; 0: there are none."""
    drawn: int
    """A checksum of where generators that the dataset holds are after a few batches; 0: they have not been drawn from, or
    did not begin as they are in all workers."""
    holder: int = 0
    """What holds them: 0 the dataset, 1 the collate function, 2 a module of the user's."""


class Snapshot(NamedTuple):
    """The state of the generators before a ticket."""

    ticket: TicketNo
    state: bytes


class _PrivateMemory:
    """In place of a segment, where worker and trainer are one process."""

    fd = -1

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SIZE))

    def close_descriptor(self) -> None:
        """There is none."""


class Board:
    """One worker's board; the same class on both sides."""

    def __init__(self, segment: Segment | _PrivateMemory) -> None:
        self.segment = segment
        self._words = segment.view.cast("q")
        self._turn = 0
        self.pulse = self._words[:_PULSE_WORDS]
        """[step, ticket + 1, position + 1], to be written in the worker's own loop: nanoseconds matter there."""
        self.notices = self._words[_PULSE_WORDS:_TIMES]
        """The parts of a `Noticed`, in their order, to be written by `engine/worker/notices.py`."""
        self.times = self._words[_TIMES : _TIMES + _TIME_WORDS]
        """The first seven parts of a `Timing`, in that order, to be written by the worker's stopwatch."""
        self.locks = self._words[_LOCKS // 8 : _PLACES[0] // 8]
        """Marks of the locks that the worker holds, to be written by whoever takes them (`engine/worker/locks.py`)."""

    @classmethod
    def over(cls, fd: int) -> Board:
        """The worker's side of a board, over this descriptor, which is closed."""
        board = cls(Segment(fd, SIZE))
        board.close()
        return board

    def read_pulse(self) -> Pulse:
        """What the worker is doing."""
        step, ticket, position = self.pulse[:3].tolist()
        return Pulse(Step(step), TicketNo(ticket - 1) if ticket else None, position - 1)

    def read_notices(self) -> Noticed:
        """What the worker has noticed."""
        asked, first_items, drawn, holder = self.notices.tolist()
        return Noticed(bool(asked), first_items, drawn, holder)

    def keep(self, ticket: TicketNo, state: bytes) -> bool:
        """Keep the state of the generators before this ticket; False if it is too large to be kept."""
        if len(state) > _ROOM:
            return False
        place = _PLACES[self._turn % 2]
        head = place // 8
        self._turn += 1
        self._words[head] = 0  # what is there is no longer whole
        body = place + 8 * _HEAD_WORDS
        self.segment.view[body : body + len(state)] = state
        self._words[head + 1] = ticket
        self._words[head + 2] = len(state)
        self._words[head] = self._turn
        return True

    def latest(self) -> Snapshot | None:
        """The last snapshot that is whole; only of a worker that is dead, or between its own tickets."""
        return next(iter(self.snapshots()), None)

    def snapshots(self) -> list[Snapshot]:
        """All that are whole, the newest first; likewise."""
        heads = [place // 8 for place in _PLACES if self._words[place // 8]]
        return [self._read_snapshot(head) for head in sorted(heads, key=self._words.__getitem__, reverse=True)]

    def _read_snapshot(self, head: int) -> Snapshot:
        body = 8 * (head + _HEAD_WORDS)
        return Snapshot(TicketNo(self._words[head + 1]), bytes(self.segment.view[body : body + self._words[head + 2]]))

    def latest_ticket(self) -> TicketNo | None:
        """The ticket of the last whole snapshot, read while the worker may be writing the other one."""
        newest = max((place // 8 for place in _PLACES), key=lambda head: self._words[head])
        return TicketNo(self._words[newest + 1]) if self._words[newest] else None

    def write_slow(self, row: int, slow: Slow) -> None:
        """Put one of the slowest into this row of the table."""
        head = (_SLOWEST + row * _ROW_BYTES) // 8
        name = 8 * (head + 3)
        self._words[head] = 0  # not to be read now
        self.segment.view[name : name + _NAME_BYTES] = _cut(slow.asked).ljust(_NAME_BYTES, b"\0")
        self._words[head + 1] = slow.ticket + 1
        self._words[head + 2] = slow.position + 1
        self._words[head] = slow.ns

    def read_timing(self) -> Timing:
        """Where the time has gone; also of a worker that is dead."""
        rows = (self._read_slow(row) for row in range(SLOWEST))
        slowest = sorted((row for row in rows if row is not None), reverse=True)
        fetch, collate, transfer, samples, batches, longest_fetch, longest_collate = self.times[:7].tolist()
        return Timing(fetch, collate, transfer, samples, batches, longest_fetch, longest_collate, tuple(slowest))

    def _read_slow(self, row: int) -> Slow | None:
        head = (_SLOWEST + row * _ROW_BYTES) // 8
        ns, ticket, position = self._words[head : head + 3].tolist()
        name = bytes(self.segment.view[8 * (head + 3) : 8 * (head + 3) + _NAME_BYTES]).rstrip(b"\0")
        if ns == 0 or self._words[head] != ns:  # empty, or written at this moment
            return None
        return Slow(ns, TicketNo(ticket - 1), position - 1, name.decode("utf-8", "replace"))

    def text_end(self) -> int:
        """How much text there is by now, in bytes; what is written from now on begins here."""
        return max(0, os.fstat(self.segment.fd).st_size - SIZE)

    def read_text(self, start: int = 0) -> str:
        """The text from here on; also of a worker that is dead. Needs the descriptor: not after `close`."""
        start = max(start, self.text_end() - MOST_TEXT)
        return os.pread(self.segment.fd, MOST_TEXT, SIZE + start).decode("utf-8", "replace")

    def close(self) -> None:
        """Let go of the descriptor."""
        self.segment.close_descriptor()


def create() -> Board:
    """A new board."""
    return Board(memory.create(SIZE))


def create_private() -> Board:
    """A new board that nobody else can read, and that holds no text."""
    return Board(_PrivateMemory())


def open_text(fd: int) -> int:
    """A descriptor that writes text at the end of the board with this descriptor, and does nothing else."""
    return machine.open_again(fd, os.O_WRONLY | os.O_APPEND)


def _cut(text: str) -> bytes:
    whole = text.encode("utf-8", "backslashreplace")
    if len(whole) <= _NAME_BYTES:
        return whole
    return whole[: _NAME_BYTES - 3].decode("utf-8", "ignore").encode() + "…".encode()
