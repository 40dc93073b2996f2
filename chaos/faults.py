"""The kinds of faults, and the points of a worker's step at which they can strike. Pure tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Point(StrEnum):
    """Where in its step a worker is."""

    STARTING = "starting"
    """In `worker_init_fn`."""
    FIRST = "first sample"
    MIDDLE = "middle sample"
    LAST = "last sample"
    COLLATING = "collating"
    WRITING = "writing"
    """While the batch is written into its slot: in a `__reduce__` of the user's."""
    SENDING = "sending"
    """The batch is whole, and nothing has been sent yet."""
    SENT = "just sent"
    IDLE = "idle"
    """As it goes to wait for more."""
    ANY_MOMENT = "any moment"
    """By a timer of the kernel's, some time after a sample was begun."""
    BETWEEN_BATCHES = "between batches"
    """Not the worker's step but the trainer's: whatever workers are at."""


FETCHING = (Point.FIRST, Point.MIDDLE, Point.LAST)
AT_WORK = (*FETCHING, Point.COLLATING, Point.WRITING, Point.SENDING, Point.SENT, Point.IDLE)
IN_HOOK = (Point.SENDING, Point.SENT, Point.IDLE)


class Family(StrEnum):
    """What becomes of the worker, and so how the ledger shows it."""

    DEATH = "death"
    RAISED = "raised"
    """The sample is fetched again by the same worker."""
    STUCK = "stuck"
    STRIKE = "strike"
    """By the trainer, at processes of its own."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault."""

    name: str
    family: Family
    points: tuple[Point, ...]
    exitcode: int | None = None
    """Of the worker, if it ends of it."""
    signal: int | None = None
    """What a timer sends for it, if it can strike at any moment."""
    needs: str | None = None
    """The control group without which it cannot be done."""


_DEATH_POINTS = (Point.STARTING, *AT_WORK)
_SIGNAL_POINTS = (*_DEATH_POINTS, Point.ANY_MOMENT)

KINDS = (
    Kind("SIGKILL", Family.DEATH, _SIGNAL_POINTS, -9, 9),
    Kind("SIGSEGV", Family.DEATH, _SIGNAL_POINTS, -11, 11),
    Kind("SIGABRT", Family.DEATH, _SIGNAL_POINTS, -6, 6),
    Kind("SIGBUS", Family.DEATH, _SIGNAL_POINTS, -7, 7),
    Kind("os._exit(0)", Family.DEATH, _DEATH_POINTS, 0),
    Kind("os._exit(1)", Family.DEATH, _DEATH_POINTS, 1),
    Kind("SystemExit", Family.DEATH, FETCHING, 4),
    Kind("KeyboardInterrupt", Family.DEATH, FETCHING, 1),
    Kind("StopIteration", Family.RAISED, FETCHING),
    Kind("sleeps for ever", Family.STUCK, AT_WORK),
    Kind("waits for a lock", Family.STUCK, AT_WORK),
    Kind("waits for a socket", Family.STUCK, AT_WORK),
    Kind("waits for a pipe", Family.STUCK, AT_WORK),
    Kind("holds the GIL in C", Family.STUCK, AT_WORK),
    Kind("SIGSTOP", Family.STUCK, (*AT_WORK, Point.ANY_MOMENT), None, 19),
    Kind("all workers killed", Family.STRIKE, (Point.BETWEEN_BATCHES,)),
    Kind("out of memory", Family.DEATH, (*FETCHING, Point.COLLATING), -9, needs="memory"),
    Kind("stem killed", Family.STRIKE, (Point.BETWEEN_BATCHES,)),
    Kind("clean base killed", Family.STRIKE, (Point.BETWEEN_BATCHES,)),
)
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a trial."""

    number: int
    kind: str
    point: Point
    epoch: int
    batch: int
    """The batch that it strikes at; of a strike: how many have been delivered before it."""
    position: int = 0
    """Of the sample, in that batch."""
    worker: int | None = None
    """Whom it strikes; None: whoever makes that batch."""
    delay_s: float = 0.0
    """For any moment: how long after the sample was begun."""

    @property
    def family(self) -> Family:
        """What becomes of the worker."""
        return BY_NAME[self.kind].family
