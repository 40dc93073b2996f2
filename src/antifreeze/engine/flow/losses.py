"""Samples that are skipped or replaced are counted, and too many of them are an error of its own. Pure.

Nobody trains on 1 % of the data without noticing.
"""

from __future__ import annotations

from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.errors import SampleFailed

# A share says little about fewer samples than this: one lost of the first three is no third of the data.
ENOUGH_SAMPLES = 1000


class Losses:
    """Counts the samples of an epoch that were delivered and those that were lost."""

    def __init__(self, max_lost: int | float) -> None:
        self._max_lost = max_lost
        self.delivered = 0
        """As the dataset gave them."""
        self.lost = 0
        """Left out of their batches, or replaced by others."""
        self._waiting: dict[TicketNo, list[str]] = {}
        """What happened to samples of batches that have not been delivered yet."""
        self._last: str | None = None

    def begin(self) -> None:
        """An epoch begins: what was lost in the one before it is not counted again."""
        self.delivered = self.lost = 0
        self._waiting.clear()
        self._last = None

    def note_lost(self, number: TicketNo, lost: list[str]) -> None:
        """These samples are missing from a batch that is to be delivered; it says of each what happened to it."""
        self._waiting[number] = lost

    def note_delivered(self, ticket: Ticket) -> bool:
        """The user is about to get this batch; whether too many are lost by now."""
        lost = self._waiting.pop(ticket.number, [])
        samples = len(ticket.samples)
        self.note(delivered=samples - len(lost), lost=len(lost))
        self._last = lost[-1] if lost else self._last
        return bool(lost) and self.judge()

    def note(self, *, delivered: int, lost: int) -> None:
        """A batch had so many samples as the dataset gave them, and so many were lost."""
        self.delivered += delivered
        self.lost += lost

    def judge(self, *, at_end: bool = False) -> bool:
        """Whether too many are lost; a share is judged when enough samples have been seen, or when there are no more."""
        if isinstance(self._max_lost, int):
            return self.lost > self._max_lost
        seen = self.delivered + self.lost
        return (at_end or seen >= ENOUGH_SAMPLES) and self.lost > self._max_lost * seen

    def error(self) -> SampleFailed:
        """The error to raise when too many are lost."""
        seen = self.delivered + self.lost
        limit = f"{self._max_lost}" if isinstance(self._max_lost, int) else f"{self._max_lost:.4g} of them"
        return SampleFailed(
            f"{self.lost} of {seen} samples of this epoch failed and were left out or replaced, more than max_lost allows",
            where=f"max_lost={self._max_lost}: at most {limit}",
            why=self._last and f"the last one: {self._last}",
            try_="look at what the samples raise (loader.ledger), or allow more: max_lost=, --max-lost",
        )
