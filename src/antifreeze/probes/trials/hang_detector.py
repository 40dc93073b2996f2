"""Decides from outside whether a trial goes on, hangs, or goes round in circles. Pure: time comes in with each look.

No progress while nothing computes is a hang. No progress while something computes is one only if a sample takes very much
longer than all before: a long first batch is slow, and no more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# No new sample or batch for so long, and nothing computes.
BLOCKED_S = 8.0
# The same, before the very first sample: connections are made and indices are built then.
FIRST_BLOCKED_S = 15.0
# A result has been lost on its way, and it is not made again: what is still to come comes soon.
LOST_S = 3.0
# One sample computes for so long, and so many times as long as the slowest so far.
ENDLESS_S = 12.0
ENDLESS_TIMES = 50.0
# Something computes, and nothing has come of it for so long: no more is waited for.
LONGEST_S = 35.0
# Less of a processor than this is no computing: a process that waits wakes up now and then.
IDLE_SHARE = 0.05


class TrialVerdict(StrEnum):
    """What a look comes to."""

    GOES_ON = "goes on"
    HANGS = "hangs"
    LOOPS = "loops"
    TAKES_LONG = "takes long"
    """It computes, and may come to something, but not while we wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSeen:
    """One process of a trial, at one look."""

    pid: int
    stage: str
    """As in `ProcessState`; empty: it has not said anything yet."""
    since: float = 0.0
    """When it came to what it is at."""
    samples: int = 0
    batches: int = 0
    slowest_s: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLook:
    """All processes of a trial, at one moment."""

    now: float
    trainer: ProcessSeen
    workers: tuple[ProcessSeen, ...] = ()
    has_lost_results: bool = False


class HangDetector:
    """Over one trial; `patience` stretches the time for which nothing may come."""

    def __init__(self, *, began: float, patience: float = 1.0) -> None:
        self._since = began
        self._times = patience
        self._progress: object = None
        self._cpu_s: dict[int, float] = {}

    def judge(self, look: TrialLook) -> TrialVerdict:
        everybody = (look.trainer, *look.workers)
        progress = {(each.pid, each.samples, each.batches, each.stage) for each in everybody}
        if progress != self._progress:
            self._progress, self._since = progress, look.now
            self._cpu_s = {each.pid: each.cpu_s for each in everybody}
            return TrialVerdict.GOES_ON
        quiet_s = look.now - self._since
        if not self._computes(look, quiet_s):
            return TrialVerdict.HANGS if quiet_s >= self._patience(look) else TrialVerdict.GOES_ON
        slowest = max(each.slowest_s for each in everybody)
        at_work = [each for each in everybody if each.stage in ("fetch", "collate")] or [look.trainer]
        longest = max(look.now - each.since for each in at_work)
        is_endless = slowest > 0 and longest >= max(ENDLESS_S, ENDLESS_TIMES * slowest) and quiet_s >= ENDLESS_S
        if is_endless:
            return TrialVerdict.LOOPS
        return TrialVerdict.TAKES_LONG if quiet_s >= LONGEST_S else TrialVerdict.GOES_ON

    def blocked_s(self, look: TrialLook) -> float:
        """For how long nothing has come, if nothing computes."""
        quiet_s = look.now - self._since
        return 0.0 if self._computes(look, quiet_s) else quiet_s

    def _patience(self, look: TrialLook) -> float:
        if look.has_lost_results:
            return LOST_S * self._times
        has_begun = any(each.samples or each.batches for each in (look.trainer, *look.workers))
        return (BLOCKED_S if has_begun else FIRST_BLOCKED_S) * self._times

    def _computes(self, look: TrialLook, quiet_s: float) -> bool:
        """Whether those whose turn it is have used a processor since the last progress."""
        everybody = (look.trainer, *look.workers)
        busy = [each for each in everybody if each.stage in ("init", "fetch", "collate")] or everybody
        spent = sum(each.cpu_s - self._cpu_s.get(each.pid, 0.0) for each in busy)
        return spent > IDLE_SHARE * quiet_s
