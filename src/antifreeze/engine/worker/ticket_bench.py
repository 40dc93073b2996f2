"""The bench of a worker whose tickets bring their seeds: what it made before has no part in what it makes next.

So there is nothing to keep, and nothing to replay when another takes over.
"""

from __future__ import annotations

import time
from typing import Any

from antifreeze.engine.arena.writer import Desk
from antifreeze.engine.wire.messages import Work
from antifreeze.engine.worker.bench import SNAPSHOT_S, Workbench
from antifreeze.engine.worker.birth import seed_ticket
from antifreeze.engine.worker.mishaps import keep_told


class TicketBench(Workbench):
    """A workbench whose generators begin anew with every ticket."""

    def _begin(self, work: Work, given: Desk | None) -> None:
        if time.monotonic() >= self._snapshot_due:
            self._snapshot_due = time.monotonic() + SNAPSHOT_S
            if self._renewal is not None:
                self._renewal.raise_if_due(samples=self.stopwatch.samples)
        self._work, self._given = work, given
        self._rewind()
        self.stopwatch.begin(work.ticket)

    def _fetch(self, work: Work) -> Any:
        def begin_again() -> None:
            keep_told(self._mishaps)
            self._rewind()

        return self.randomness.fetch_seeded(lambda: super(TicketBench, self)._fetch(work), begin_again)

    def _rewind(self) -> bool:
        assert self._work.seed is not None
        seed_ticket(self._work.seed, self.randomness.find())
        self._turn_to(self._work, self._given)
        return True
