"""Results that are silently wrong, as torch's are: what workers have noticed is looked at, and each doubt is told once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Protocol

from antifreeze.codes import named
from antifreeze.engine.arena.board import Board
from antifreeze.engine.chronicle import Chronicle
from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.supervise.doubts import doubts_about, doubts_about_repeating


class Observed(Protocol):
    """Somebody who makes batches, and notices something about them."""

    board: Board

    @property
    def leases(self) -> Sized: ...


class Misgivings:
    """What speaks against the results of one iterator."""

    def __init__(
        self,
        workers: Sequence[Observed],
        chronicle: Chronicle,
        *,
        first_items: Mapping[WorkerNo, int],
        is_stream: bool,
        fixes: frozenset[str],
    ) -> None:
        """`first_items`: of workers that are gone, what their stream began with."""
        self._workers = workers
        self._first_items = first_items
        self._chronicle = chronicle
        self._is_stream = is_stream
        self._fixes = fixes
        self._told: set[str] = set()

    def look(self) -> None:
        """Hold what workers have noticed against each other."""
        noticed = [worker.board.read_notices() for worker in self._workers]
        doubts = doubts_about(noticed, is_stream=self._is_stream, fixes=self._fixes)
        for number, first in self._first_items.items():
            if not self._workers[number].leases:  # else it may not be through with reading again
                doubts += doubts_about_repeating(noticed[number], first_items=first)
        for what in doubts:
            self._tell(what)

    def note_stale(self, path: str) -> None:
        """Something in the dataset is not what it was when the workers were started."""
        did = 'fix=("stale",) or --fix stale starts them anew'
        if "stale" in self._fixes:
            did = "they are started anew"
        self._tell(
            f"{named('AF503')}: {path} was changed, and kept workers (persistent_workers=True) have the dataset as it was "
            f"when they were started: {did}"
        )

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._chronicle.note_doubt(what)
