"""Results that are silently wrong, as torch's are: what workers have noticed is looked at, and each doubt is told once."""

from __future__ import annotations

from antifreeze.codes import named
from antifreeze.engine.chronicle import Chronicle
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.succession import Succession
from antifreeze.engine.supervise.doubts import doubts_about, doubts_about_repeating


class Misgivings:
    """What speaks against the results of one iterator."""

    def __init__(
        self, pool: Pool, succession: Succession, chronicle: Chronicle, *, is_stream: bool, fixes: frozenset[str]
    ) -> None:
        self._pool = pool
        self._succession = succession
        self._chronicle = chronicle
        self._is_stream = is_stream
        self._fixes = fixes
        self._told: set[str] = set()

    def look(self) -> None:
        """Hold what workers have noticed against each other."""
        noticed = [worker.board.read_notices() for worker in self._pool.workers]
        doubts = doubts_about(noticed, is_stream=self._is_stream, fixes=self._fixes)
        for number, first in self._succession.first_items.items():
            if not self._pool.workers[number].leases:  # else it may not be through with reading again
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
