"""From readings to a verdict: pure arithmetic, from what was read alone.

A ratio is formed within each round, of an engine's reading and torch's in the same round, and is above 1 where the engine
is better than torch, whatever the figure. Reported are the median of the ratios and an interval that holds the true median
with at least 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engines import AGAIN, INLINE, OURS, TORCH
from reading import Reading
from workloads import EVEN, AsFast, AtLeast, AtMost, AtMostLater, DatasetOnce, Goal, Workload

# Two runs of the same engine may differ by this much before we distrust the harness or the machine: by so much in the
# ratio, or, where it is about start-up, by so many seconds.
SELF_TEST_BAND = (0.85, 1.18)
SELF_TEST_S = 0.1

Round = Mapping[str, Reading]
"""One reading of every engine that took part, by its name."""


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} × [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one engine in one figure."""

    readings: tuple[float | None, ...]
    """By round; None where it did not take part."""
    median: float
    ratio: Interval | None
    """To torch; None for torch itself."""
    to_inline: float | None
    """The median of the ratios to num_workers=0; None where that has no such figure."""
    extra: tuple[dict[str, float], ...]
    """What else its readings say, in the order of the rounds that it took part in."""


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: str | None
    """In words; None: only reported."""
    passed: bool | None
    is_slower: bool
    """The median is below `EVEN`."""


@dataclass(frozen=True, slots=True)
class Result:
    """One figure of one workload: everything that the report says of it."""

    workload: str
    title: str
    figure: str
    seen: dict[str, Seen]
    absent: dict[str, str]
    """Engines without this figure, and why."""
    notes: tuple[str, ...]
    ours: str
    """The engine that is judged: antifreeze, or torch once more in a self-test."""
    verdict: Verdict


def judge(
    workload: Workload,
    figure: str,
    rounds: Sequence[Round],
    *,
    cores: int,
    ours: str = OURS,
    absent: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Result:
    """Everything there is to say of a figure."""
    names = dict.fromkeys(name for each in rounds for name, reading in each.items() if figure in reading.figures)
    seen = {name: see(rounds, name, figure) for name in names}
    # An engine that failed in some round is absent for its reason, whatever it did in others.
    seen = {name: each for name, each in seen.items() if name not in (absent or {})}
    return Result(
        workload=workload.name,
        title=workload.title,
        figure=figure,
        seen=seen,
        absent=dict(absent or {}),
        notes=tuple(notes),
        ours=ours,
        verdict=verdict_on(workload.goals.get(figure), figure, seen, rounds, cores=cores, ours=ours),
    )


def see(rounds: Sequence[Round], name: str, figure: str) -> Seen:
    values = [each[name].figures.get(figure) if name in each else None for each in rounds]
    to_torch = ratios(rounds, name, TORCH, figure)
    to_inline = ratios(rounds, name, INLINE, figure)
    return Seen(
        readings=tuple(values),
        median=statistics.median(value for value in values if value is not None),
        ratio=interval(to_torch) if to_torch and name != TORCH else None,
        to_inline=statistics.median(to_inline) if to_inline and name != INLINE else None,
        extra=tuple(each[name].extra for each in rounds if name in each),
    )


def ratios(rounds: Sequence[Round], one: str, other: str, figure: str) -> list[float]:
    """How much better one engine is than another, by round."""
    found = []
    for each in rounds:
        if one in each and other in each and figure in each[one].figures and figure in each[other].figures:
            better, worse = each[one].figures[figure], each[other].figures[figure]
            found.append(better / worse if is_more_better(figure) else worse / better)
    return found


def is_more_better(figure: str) -> bool:
    return figure == "rate"


def quantity(figure: str, value: float) -> str:
    """A value in its unit."""
    if figure == "rate":
        return f"{value:,.1f}/s" if value < 1000 else f"{value:,.0f}/s"
    if figure == "growth":
        return f"{value:.2f} ×"
    return f"{value / 2**30:.2f} GiB" if figure == "memory" else f"{value:.3f} s"


def verdict_on(
    goal: Goal | None, figure: str, seen: Mapping[str, Seen], rounds: Sequence[Round], *, cores: int, ours: str
) -> Verdict:
    if TORCH not in seen or ours not in seen:
        return Verdict("readings of both", passed=False, is_slower=False)
    ratio = seen[ours].ratio
    assert ratio is not None
    if ours == AGAIN:
        return self_test_verdict(figure, ratio, rounds)
    words, passed = meets(goal, figure, ratio, seen, rounds, cores=cores, ours=ours)
    return Verdict(words, passed, is_slower=ratio.median < EVEN)


def meets(
    goal: Goal | None,
    figure: str,
    ratio: Interval,
    seen: Mapping[str, Seen],
    rounds: Sequence[Round],
    *,
    cores: int,
    ours: str,
) -> tuple[str | None, bool | None]:
    """The goal in words, and whether it is met."""
    match goal:
        case None:
            return None, None
        case AtLeast():
            floor = goal.floor_for(cores)
            return f"at least {floor:g} ×", ratio.median >= floor
        case AsFast():
            return f"at least {EVEN:g} ×, interval reaches 1", ratio.median >= EVEN and ratio.high >= 1.0
        case AtMostLater(allowance_s):
            return f"at most {allowance_s:g} s later", later_s(rounds, ours, figure).median <= allowance_s
        case DatasetOnce(dataset_bytes):
            bare = statistics.median(each[TORCH].extra["bare_bytes"] for each in rounds if TORCH in each)
            limit = dataset_bytes + bare
            words = f"at most {dataset_bytes / 2**30:g} GiB and {bare / 2**30:.2f} GiB for bare workers"
            return words, seen[ours].median <= limit
        case AtMost(limit):
            return f"at most {quantity(figure, limit)}", seen[ours].median <= limit


def self_test_verdict(figure: str, ratio: Interval, rounds: Sequence[Round]) -> Verdict:
    """An engine against itself must come out even."""
    low, high = SELF_TEST_BAND
    if low <= ratio.median <= high:
        return Verdict(f"{low} to {high} ×", passed=True, is_slower=False)
    if figure in ("first_batch", "next_epoch", "next_epoch_kept"):
        return Verdict(
            f"{low} to {high} ×, or within {SELF_TEST_S:g} s",
            passed=abs(later_s(rounds, AGAIN, figure).median) <= SELF_TEST_S,
            is_slower=False,
        )
    return Verdict(f"{low} to {high} ×", passed=False, is_slower=False)


def later_s(rounds: Sequence[Round], ours: str, figure: str) -> Interval:
    """Our seconds minus torch's."""
    both = [each for each in rounds if ours in each and TORCH in each]
    return interval([each[ours].figures[figure] - each[TORCH].figures[figure] for each in both])


def interval(values: Sequence[float]) -> Interval:
    """The median, and the narrowest pair of ranks around it that holds the true median with at least 95 %.

    No assumption on the distribution: each value lies below the true median with probability one half. With fewer than
    six values even the smallest and the largest hold it with less, and are given all the same.
    """
    ordered, count = sorted(values), len(values)
    rank, outside = 0, 2 * 0.5**count
    while outside + 2 * math.comb(count, rank + 1) * 0.5**count <= 0.05:
        rank += 1
        outside += 2 * math.comb(count, rank) * 0.5**count
    return Interval(ordered[rank], statistics.median(ordered), ordered[count - 1 - rank])
