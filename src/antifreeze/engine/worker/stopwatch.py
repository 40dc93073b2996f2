"""How long samples, batches and their transfer take, measured so that it is not felt.

The steps of a batch are always timed, by one look at the clock after each. Single samples are timed only while they take
long enough for that to cost nothing; the batch before tells. A batch that turns out slow although its samples were not
timed is remembered as a whole.

In the worker's loop: `begin` before the first sample, `fetched` after the last, `collated`, `sent`. A batch that fails
leaves out the rest. `fetch.py` has the loop over samples in two forms, and chooses by `times_samples` for each batch.
"""

from __future__ import annotations

import reprlib
import struct
import time
from typing import Any

from antifreeze.engine.arena.board import SLOWEST, Board, Slow
from antifreeze.engine.numbers import TicketNo

# Samples faster than this, on average, are not timed one by one: the look at the clock would cost more than a per cent.
FAST_NS = 10_000
# The board is this much behind, at the most: writing takes longer than looking at the clock.
WRITE_NS = 1_000_000
# The first batches are written at once: how long samples take is what a stall is judged by.
AT_ONCE = 8
_pack = struct.Struct("=7q").pack_into


class Stopwatch:
    """Times one worker, and writes the results onto its board after every batch."""

    __slots__ = (
        "_batches",
        "_board",
        "_collate_ns",
        "_fetch_ns",
        "_longest_collate_ns",
        "_longest_fetch_ns",
        "_repr",
        "_rows",
        "_ticket",
        "_times",
        "_transfer_ns",
        "_write_due",
        "clock",
        "samples",
        "since",
        "slow_ns",
        "times_samples",
    )

    def __init__(self, board: Board) -> None:
        self.clock = time.perf_counter_ns
        self.times_samples = True
        """Whether the samples of the next batch are to be timed one by one; the first are, for nothing is known yet."""
        self.slow_ns = FAST_NS
        """A sample must take longer than this to be one of the slowest."""
        self.since = 0
        """When the step under way began."""
        self._board = board
        self._times = board.times
        self._ticket = TicketNo(-1)
        self._fetch_ns = self._collate_ns = self._transfer_ns = 0
        self.samples = self._batches = 0
        self._longest_fetch_ns = self._longest_collate_ns = 0
        self._write_due = 0
        self._rows = [0] * SLOWEST
        """How long the sample in each row of the board's table took."""
        self._repr = reprlib.Repr()
        self._repr.maxstring = self._repr.maxother = 60  # as much as the board has room for

    def begin(self, ticket: TicketNo) -> None:
        """Fetching for this ticket begins now."""
        self._ticket = ticket
        self.since = self.clock()

    def note_slow(self, ns: int, position: int, index: Any) -> int:
        """This sample took longer than `slow_ns`; returns what that is from now on."""
        rows = self._rows
        # Not rows.index(min(rows)): without workers, threads may share an iterator, and change what another looks for.
        row = min(range(SLOWEST), key=rows.__getitem__)
        rows[row] = ns
        self._board.write_slow(row, Slow(ns, self._ticket, position, self._describe(index)))
        if ns > self._longest_fetch_ns:
            self._longest_fetch_ns = ns
            self.write()
        self.slow_ns = max(FAST_NS, min(self._rows))
        return self.slow_ns

    def fetched(self, count: int, whole: Any = None) -> None:
        """All samples of the batch are there; `whole` is its index, if they were not timed one by one."""
        now = self.clock()
        ns, self.since = now - self.since, now
        self._fetch_ns += ns
        self.samples += count
        self.times_samples = ns > count * FAST_NS
        if self.times_samples and whole is not None and ns > self.slow_ns:
            self.note_slow(ns, -1, whole)

    def collated(self) -> None:
        """The samples have become a batch."""
        now = self.clock()
        ns, self.since = now - self.since, now
        self._collate_ns += ns
        if ns > self._longest_collate_ns:
            self._longest_collate_ns = ns

    def sent(self) -> None:
        """The batch has been written into its slot and reported."""
        now = self.clock()
        self._transfer_ns += now - self.since
        self._batches += 1
        if now >= self._write_due or self._batches <= AT_ONCE:
            self._write_due = now + WRITE_NS
            self.write()

    def write(self) -> None:
        """Onto the board."""
        _pack(
            self._times,
            0,
            self._fetch_ns,
            self._collate_ns,
            self._transfer_ns,
            self.samples,
            self._batches,
            self._longest_fetch_ns,
            self._longest_collate_ns,
        )

    def _describe(self, index: Any) -> str:
        try:
            return self._repr.repr(index)
        except Exception:  # of a __repr__ of the user's own: a batch does not fail for it
            return f"<{type(index).__name__}>"
