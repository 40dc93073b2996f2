"""Which stem workers come from: forked from the trainer, or clean; or that there are none. Pure.

torch's start method decides, with two exceptions. Where torch would fork and something stands in the way that a fork breaks
for certain, workers start clean. It makes no difference whether the program has asked for `fork` by name. And where the
dataset lives by a thread of this process, no other process can load it.
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
    is_certain: bool = False
    """Whether a forked worker that uses it waits for ever, or fails."""
    is_thread: bool = False
    """Whether it is a thread, which no worker has, and which one may wait for or not."""
    stays_here: bool = False
    """Whether it is of no use in a fresh process either: a copy of it lacks the thread of this one that it lives by."""

    def __str__(self) -> str:
        return f"{self.path} is {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Grown:
    """Forked from the trainer, as torch would."""


@dataclass(frozen=True, slots=True)
class Clean:
    """From a fresh process."""

    because: Hazard | None
    """What stands in the way of a fork; None: torch would not fork either."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """From nowhere: no worker could do it."""

    because: Hazard


def choose(start_method: str, hazard: Hazard | None) -> Grown | Clean | InProcess:
    """The stem of a loader whose workers torch would start by this method."""
    if hazard is not None and hazard.stays_here:
        return InProcess(hazard)
    if start_method != "fork":
        return Clean(None)
    return Clean(hazard) if hazard is not None else Grown()
