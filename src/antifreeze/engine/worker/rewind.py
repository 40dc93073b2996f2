"""Brings a worker's generators back to where they were before its ticket: the last snapshot, and what was done since.

What has to be done again on the way is thrown away; it has been sent.
"""

from __future__ import annotations

from collections.abc import Callable

from antifreeze.engine.wire.messages import Work
from antifreeze.engine.worker.randomness import Randomness


class Rewinder:
    """Remembers the last snapshot, and the tickets begun since then."""

    def __init__(self, randomness: Randomness, replay: Callable[[Work], None]) -> None:
        self._randomness = randomness
        self._replay = replay
        self._state: bytes | None = None
        self._since: list[Work] = []
        self.note: Callable[[Work], object] = _forget
        """To be told every ticket that is begun."""

    def mark(self, state: bytes | None) -> None:
        """This is the state before the next ticket; None: nobody can tell what it is."""
        self._state = state
        self._since.clear()
        # A list's own append, and no method that decides: it is called for every batch, however small.
        self.note = _forget if state is None else self._since.append

    def rewind(self) -> bool:
        """Make the generators as they were before the ticket under way; whether that could be done."""
        if self._state is None:
            return False
        try:
            self._randomness.restore(self._state)
            for work in self._since[:-1]:  # the last one is under way
                self._replay(work)
            self._state = self._randomness.state()
        except Exception:  # of a generator of the user's own kind
            return False
        del self._since[:-1]
        return True


def _forget(work: Work) -> None:
    """Without a state to go back to, nothing is done again."""
