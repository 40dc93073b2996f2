"""Waiting for a process that starts or ends, for as long as it works."""

from __future__ import annotations

import time

from antifreeze import machine
from antifreeze.engine.backends import process
from antifreeze.engine.supervise.patience import Patience
from antifreeze.engine.supervise.watchdog import Seen

# A look at a process shows little if the last one was just before.
LOOK_EVERY_S = 0.5


class IdleWatch:
    """Looks at a process now and then, while somebody waits for what it says."""

    def __init__(self, pid: int, *, limit_s: float) -> None:
        self._pid = pid
        self._patience = Patience(limit_s)
        self._families = machine.Families()
        self._looked = time.monotonic()

    def is_idle_too_long(self) -> bool:
        """Whether it has done nothing for too long; a machine that was suspended has cost it no more than a slice."""
        passed_s = time.monotonic() - self._looked
        if passed_s < LOOK_EVERY_S:
            return False
        self._looked += passed_s
        return self._patience.is_over(self._look(), passed_s=min(passed_s, 2 * process.SLICE_S))

    def _look(self) -> Seen | None:
        facts = machine.process_facts(self._pid)
        used = self._families.facts_of([self._pid]).get(self._pid)
        if facts is None or used is None:
            return None
        is_traced, is_stopped = facts.tracer_pid != 0, facts.state == "T"
        return Seen(used.cpu_s, used.io_bytes, is_traced, is_stopped, facts.waits_in, used.is_running)
