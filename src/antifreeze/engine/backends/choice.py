"""Where a loader's workers come from: forked from the trainer, or from a fresh process; or that there are none. Pure.

The start method decides, as with torch. What a fork breaks is mended in the workers, or it is said and they are watched:
a fresh process in the place of a fork would give other data without a word (decision 21). But a dataset that lives by a
thread of this process is not sent to a fresh one, where torch's own pickling fails.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hazard:
    """Something within the dataset's reach that does not survive a fork."""

    path: str
    """Where it is, as `dataset.client.sock`."""
    what: str
    """To follow "is", as in "is an open socket"."""
    why: str
    """What a fork does to it."""
    may_freeze: bool = False
    """Whether a worker that uses it waits forever."""
    stays_here: bool = False
    """Whether it is of no use in a fresh process either: a copy of it lacks the thread of this one that it lives by."""

    def __str__(self) -> str:
        return f"{self.path} is {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Grown:
    """Forked from the trainer."""


@dataclass(frozen=True, slots=True)
class Clean:
    """From a fresh process."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """From nowhere: no worker could do it."""

    because: Hazard


def choose(start_method: str, lost_thread: Hazard | None) -> Grown | Clean | InProcess:
    """Where the workers come from that torch would start by this method."""
    if start_method == "fork":
        return Grown()
    return InProcess(lost_thread) if lost_thread is not None and lost_thread.stays_here else Clean()
