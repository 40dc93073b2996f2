"""Facts as checks show them in their examples: a loader of torch's with two forked workers, and what came of it. Pure."""

from __future__ import annotations

from typing import Any

from antifreeze.doctor.facts import Facts, Loader, Outcome, Place, Stuck, Trial

FORKED = Loader(number=0, num_workers=2, start_method="fork")


def tried(loader: Loader, *trials: Trial, **known: Any) -> Facts:
    """What is known when this loader was tried so, with what else is known."""
    return Facts(loaders=(loader,), trials=trials, **known)


def as_written(outcome: Outcome = Outcome.OK, *, workers: int = 2, **known: Any) -> Trial:
    """The loader just as the script has it."""
    return with_workers(workers, outcome, is_as_written=True, **known)


def with_workers(workers: int, outcome: Outcome = Outcome.OK, **known: Any) -> Trial:
    return Trial(loader=0, engine="torch", workers=workers, outcome=outcome, **known)


def stuck_worker(line: Place, *, inside: tuple[Place, ...] = (), **known: Any) -> Stuck:
    """One that has been at this line of the user's for twelve seconds, in a call that leads `inside`."""
    usual: dict[str, Any] = {"worker": 0, "sample": "0", "waits_in": "lock", "state": "S"}
    frames = (*inside, line)
    return Stuck(role="worker", pid=4243, seconds=12, stage="fetch", place=line, frames=frames, **usual | known)
