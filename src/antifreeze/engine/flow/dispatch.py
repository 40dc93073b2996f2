"""Which tickets go out now: first come, first served, and never more under way than the window holds.

A ticket is under way from its sending until its batch is in the user's hands (or thrown away), for that is how long it
may occupy a slot. In a calm run the window is as large as torch's prefetch, and nothing is ever held back; it shrinks
when batches turn out too large for the arena's budget. While a slow batch is waited for, some tickets may be *ahead* of
the window.
"""

from __future__ import annotations

from collections import deque

from antifreeze.engine.plan.ticket import Ticket


class Dispatch:
    """Holds tickets back until there is room for their batches."""

    def __init__(self, *, window: int) -> None:
        self._window = window
        self.ahead = 0
        """How many more than that may be under way for now."""
        self._under_way = 0
        self._waiting: deque[Ticket] = deque()

    @property
    def window(self) -> int:
        """How many tickets may be under way at once."""
        return self._window

    def begin(self) -> None:
        """A pass begins, and none of its tickets is ahead of the window."""
        self.ahead = 0

    def add(self, ticket: Ticket) -> None:
        """A new ticket, to be sent after all that came before it."""
        self._waiting.append(ticket)

    def peek(self) -> Ticket | None:
        """The ticket that would be sent next."""
        return self._waiting[0] if self._waiting else None

    def next_to_send(self) -> Ticket | None:
        """The ticket to send now, if there is one and the window has room; it counts as under way from here on."""
        if not self._waiting or self._under_way >= self._window + self.ahead:
            return None
        self._under_way += 1
        return self._waiting.popleft()

    def call_off(self) -> list[Ticket]:
        """Those that have not been sent, and now will not be."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def done(self) -> None:
        """A batch has left our hands: its ticket is no longer under way."""
        self._under_way -= 1

    def widen(self) -> None:
        """Let one more be under way, until as many have been delivered."""
        self.ahead += 1

    @property
    def is_overfull(self) -> bool:
        """Whether more are under way than may be: the window has become smaller."""
        return self._under_way > self._window + self.ahead

    def narrow(self) -> bool:
        """A batch is about to be delivered: whether it was one too many, so that none is to be planned in its place."""
        if not self.ahead:
            return False
        self.ahead -= 1
        return True

    def fit(self, window: int) -> None:
        """Let this many tickets be under way at once from now on."""
        self._window = max(1, window)
