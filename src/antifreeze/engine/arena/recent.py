"""The largest of the last few values: what is needed now, and not what was needed once. Pure."""

from __future__ import annotations


class RecentMaximum:
    """Forgets a value after `span` more of them at the earliest, and after twice as many at the latest."""

    __slots__ = ("_count", "_current", "_span", "value")

    def __init__(self, span: int) -> None:
        self._span = span
        self._count = 0
        self._current = 0
        """The largest since the values were last counted from zero."""
        self.value = 0
        """The largest of that, and of the `span` values before."""

    def note(self, value: int) -> int:
        """Take another value into account; returns the largest."""
        if value > self._current:
            self._current = value
            if value > self.value:
                self.value = value
        self._count += 1
        if self._count == self._span:
            self.value, self._current, self._count = self._current, 0, 0
        return self.value
