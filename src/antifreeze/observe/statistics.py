"""Where the time went, and what went wrong, in numbers.

`Tally` is what the trainer keeps, `Statistics` what the user is given. Moments come in as `now`, from one clock that
never goes back.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from antifreeze.observe.ledger import Kind

MOST_SLOW = 10


class SlowSample(NamedTuple):
    """A sample that took long."""

    sample: str
    """Its index, as `repr` writes it."""
    seconds: float
    batch: int | None
    """Number of the batch, counted from 0 in its epoch; None when it is not known."""
    worker: int | None
    """None: the trainer fetched it itself (`num_workers=0`)."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """How a loader has done so far."""

    batches: int = 0
    """Batches that the user has received."""
    samples_lost: int = 0
    """Samples that batches went without, or that others took the place of."""
    seconds: float = 0.0
    """From the first `iter()` to the end of the last `next()`."""
    waiting_s: float = 0.0
    """Of these, spent in `next()`."""
    waiting_share: float = 0.0
    """The same as a fraction, from 0 to 1."""
    fetch_s: float = 0.0
    """Spent in the dataset, summed over all workers."""
    collate_s: float = 0.0
    """Spent in `collate_fn`, summed over all workers."""
    transfer_s: float = 0.0
    """Spent on writing batches into shared memory, summed over all workers."""
    slowest: tuple[SlowSample, ...] = ()
    """At most ten, the slowest first, each sample once."""
    restarts: int = 0
    """Workers that were replaced."""
    stalls: int = 0
    hedges: int = 0
    """Batches that a second worker was given because the first was stuck."""

    def __str__(self) -> str:
        lines = [
            f"{count_of(self.batches, 'batch')} in {self.seconds:.1f} s, {self.waiting_share:.0%} of it waiting for data",
            f"workers  fetch {self.fetch_s:.1f} s, collate {self.collate_s:.1f} s, transfer {self.transfer_s:.1f} s",
            f"mishaps  {', '.join(self.mishaps()) or 'none'}",
        ]
        for place, slow in enumerate(self.slowest):
            batch = None if slow.batch is None else f"batch {slow.batch}"
            worker = None if slow.worker is None else f"worker {slow.worker}"
            where = ", ".join(filter(None, (batch, worker)))
            label = "" if place else "slowest"
            lines.append(f"{label:<7}  {slow.seconds:.3g} s  sample {slow.sample}{f' ({where})' if where else ''}")
        return "\n".join(lines)

    def mishaps(self) -> list[str]:
        """What went wrong, in words; empty after a calm run."""
        numbers = {
            "stall": self.stalls,
            "hedge": self.hedges,
            "restart": self.restarts,
            "lost sample": self.samples_lost,
        }
        return [count_of(number, what) for what, number in numbers.items() if number]


class Tally:
    """Adds up while the loader runs; once per batch, so it does next to nothing."""

    __slots__ = (
        "_batches",
        "_collate_s",
        "_fetch_s",
        "_first",
        "_last",
        "_slowest",
        "_transfer_s",
        "_waiting_s",
    )

    def __init__(self) -> None:
        self._batches = 0
        self._first: float | None = None
        self._last = 0.0
        self._waiting_s = 0.0
        self._fetch_s = 0.0
        self._collate_s = 0.0
        self._transfer_s = 0.0
        self._slowest: tuple[SlowSample, ...] = ()

    def begin(self, now: float) -> None:
        """An iterator starts; the clock runs from the first of them."""
        if self._first is None:
            self._first = self._last = now

    def note_batch(self, asked: float, given: float) -> None:
        """The user asked for a batch then, and was given it now."""
        self._waiting_s += given - asked
        self._last = given
        self._batches += 1

    def note_none(self, asked: float, given: float) -> None:
        """The user asked for a batch, and was given none: it was the end of the epoch, or an error."""
        self._waiting_s += given - asked
        self._last = given

    def merge_worker(
        self, fetch_s: float, collate_s: float, transfer_s: float, slowest: Sequence[SlowSample] = ()
    ) -> None:
        """Add what a worker has spent since it last said so, and its slowest samples."""
        self._fetch_s += fetch_s
        self._collate_s += collate_s
        self._transfer_s += transfer_s
        if not slowest:
            return
        times: dict[str, SlowSample] = {}
        for slow in (*self._slowest, *slowest):
            if slow.sample not in times or slow.seconds > times[slow.sample].seconds:
                times[slow.sample] = slow
        self._slowest = tuple(heapq.nlargest(MOST_SLOW, times.values(), key=lambda slow: slow.seconds))

    def snapshot(self, counts: Mapping[Kind, int]) -> Statistics:
        """The numbers as they are now, with those of the ledger."""
        seconds = 0.0 if self._first is None else self._last - self._first
        return Statistics(
            batches=self._batches,
            samples_lost=counts.get(Kind.SAMPLE_SKIPPED, 0) + counts.get(Kind.SAMPLE_REPLACED, 0),
            seconds=seconds,
            waiting_s=self._waiting_s,
            waiting_share=min(1.0, self._waiting_s / seconds) if seconds > 0 else 0.0,
            fetch_s=self._fetch_s,
            collate_s=self._collate_s,
            transfer_s=self._transfer_s,
            slowest=self._slowest,
            restarts=counts.get(Kind.WORKER_REPLACED, 0),
            stalls=counts.get(Kind.STALL, 0),
            hedges=counts.get(Kind.HEDGE_STARTED, 0),
        )


def count_of(number: int, what: str) -> str:
    """A number of things in words: `1 stall`, `2 batches`."""
    ending = "" if number == 1 else "es" if what.endswith("ch") else "s"
    return f"{number} {what}{ending}"
