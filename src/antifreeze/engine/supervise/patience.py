"""How long a process that is waited for may be idle. Pure: it is told what was seen, and how much time has passed.

One that works, however slowly, is waited for: an import from a file server that a hundred ranks read at once takes minutes.
"""

from __future__ import annotations

from antifreeze.engine.supervise.watchdog import Seen, is_working


class Patience:
    """Counts the time in which a process does nothing."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._before: Seen | None = None
        self.idle_s = 0.0
        """For how long it has done nothing."""

    def is_over(self, seen: Seen | None, *, passed_s: float) -> bool:
        """Take in a look at the process, so long after the last one; whether it has been idle for too long."""
        before, self._before = self._before, seen or self._before
        works = seen is not None and before is not None and (seen.is_traced or is_working(before, seen, passed_s))
        self.idle_s = 0.0 if works else self.idle_s + passed_s
        return self.idle_s >= self._limit_s
