"""The times that workers keep on their boards, added up for the user."""

from __future__ import annotations

from typing import Protocol

from antifreeze.engine.arena.board import Board, Timing
from antifreeze.engine.numbers import SeatNo, WorkerNo
from antifreeze.engine.plan.ticket import NOBODY
from antifreeze.observe.statistics import SlowSample, Tally


class Timed(Protocol):
    """Somebody who makes batches, and keeps the time."""

    board: Board

    @property
    def number(self) -> WorkerNo: ...
    @property
    def seat(self) -> SeatNo: ...


class Times:
    """Reads what is new on the boards."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._read: dict[SeatNo, Timing] = {}

    def read(self, worker: Timed) -> None:
        """Add what this worker, which may be dead, has spent since it was last asked."""
        now, before = worker.board.read_timing(), self._read.get(worker.seat)
        self._read[worker.seat] = now
        slowest = [
            SlowSample(slow.asked, slow.ns / 1e9, None, None if worker.number == NOBODY else int(worker.number))
            for slow in now.slowest
            if before is None or slow not in before.slowest
        ]
        fetch, collate, transfer = now[:3] if before is None else (new - old for new, old in zip(now[:3], before[:3]))  # noqa: B905
        self._tally.merge_worker(fetch / 1e9, collate / 1e9, transfer / 1e9, slowest)
