"""A sample has failed: is it fetched again, and are too many lost by now? Pure.

Samples that are skipped or replaced are counted, and too many of them are an error of its own: nobody trains on 1 % of
the data without noticing.
"""

from __future__ import annotations

from antifreeze.errors import SampleFailed
from antifreeze.settings import Policy

# No failure is given longer than this to pass.
LONGEST_WAIT_S = 30.0
# A share says little about fewer samples than this: one lost of the first three is no third of the data.
ENOUGH_SAMPLES = 1000


def wait_before_next(policy: Policy, *, failed: int, is_stop_iteration: bool) -> float | None:
    """Seconds until a sample that has failed so often is fetched again; None: it is not.

    StopIteration is tried twice whatever the policy: it says less about a sample than any other exception does.
    """
    if failed <= policy.retries:
        return min(policy.backoff_s * 2.0 ** min(failed - 1, 64), LONGEST_WAIT_S)
    return 0.0 if is_stop_iteration and failed == 1 else None


class Losses:
    """Counts the samples of an epoch that were delivered and those that were lost."""

    def __init__(self, max_lost: int | float) -> None:
        self._max_lost = max_lost
        self.delivered = 0
        """As the dataset gave them."""
        self.lost = 0
        """Left out of their batches, or replaced by others."""

    def begin(self) -> None:
        """An epoch begins: what was lost in the one before it is not counted again."""
        self.delivered = self.lost = 0

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

    def error(self, *, last: str | None = None) -> SampleFailed:
        """The error to raise when too many are lost; `last` says what happened to one of them."""
        seen = self.delivered + self.lost
        limit = f"{self._max_lost}" if isinstance(self._max_lost, int) else f"{self._max_lost:.4g} of them"
        return SampleFailed(
            f"{self.lost} of {seen} samples of this epoch failed and were left out or replaced, more than max_lost allows",
            where=f"max_lost={self._max_lost}: at most {limit}",
            why=last and f"the last one: {last}",
            try_="look at what the samples raise (loader.ledger), or allow more: max_lost=, --max-lost",
        )
