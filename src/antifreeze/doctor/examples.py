"""The worker that does not come back, as checks of freezes show it in their examples. Pure."""

from __future__ import annotations

from typing import Any

from antifreeze.doctor.facts import Outcome, Place, Stuck, Trial


def stuck_worker(line: Place, *, inside: tuple[Place, ...] = (), **known: Any) -> Stuck:
    """One that has been at this line of the user's for twelve seconds, in a call that leads `inside`."""
    usual: dict[str, Any] = {"worker": 0, "sample": "0", "waits_in": "lock", "state": "S"}
    frames = (*inside, line)
    return Stuck(role="worker", pid=4243, seconds=12, stage="fetch", place=line, frames=frames, **usual | known)


def hanging_trial(stuck: Stuck) -> Trial:
    """The loader as it is written, with two workers, of which one is stuck."""
    return Trial(loader=0, engine="torch", workers=2, outcome=Outcome.HANG, is_as_written=True, stuck=(stuck,))
