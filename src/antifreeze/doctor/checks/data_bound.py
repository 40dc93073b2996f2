"""Loading is what limits the training, and it could be faster.

What happens: the training step waits for batches. The samples take long to read or transform, and the workers cannot
keep up.

How we know: in trials of the loader alone, another number of workers, or our engine, gave batches much faster than the
loader as it is written; or in a program that runs now, the trainer waits for its loader while all workers compute.

What to do: the `num_workers` that the trials recommend; `antifreeze run --stats train.py` tells how much of the time
the training waits. If the training step is slower than loading, none of it matters.

Looks like: AF402 many-small-tensors, AF403 lock-around-reads and AF401 workers-restarted, where the time is lost on the
way and not in the samples; AF404 too-many-workers, where they are in each other's way.

Read on: https://docs.pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading,
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.advice import measured
from antifreeze.doctor.cases import LoaderCase, at
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import tried
from antifreeze.doctor.facts import Loader, Outcome, Place, Trial
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.speeds import later_s, rate
from antifreeze.doctor.waits import Wait, is_at_work, wait_of

# So much faster is worth a word.
FASTER = 2.0
# Faster than any training step: nobody waits for that.
ENOUGH_PER_S = 50.0
# A shorter epoch tells more about the start of workers than about loading.
SHORTEST_S = 1.0

_LOADER = Loader(number=0, num_workers=1, built_at=Place("train.py", 30))


def _trial(*, workers: int, seconds: float, is_as_written: bool = False) -> Trial:
    return Trial(
        loader=0,
        engine="torch",
        workers=workers,
        outcome=Outcome.OK,
        is_as_written=is_as_written,
        batches=20,
        samples=640,
        seconds=seconds,
        first_batch_s=0.5,
    )


SICK = tried(_LOADER, _trial(workers=1, seconds=10, is_as_written=True), _trial(workers=4, seconds=3))
HEALTHY = tried(_LOADER, _trial(workers=1, seconds=10, is_as_written=True), _trial(workers=4, seconds=9))


@check("AF406", "data-bound", sick=SICK, healthy=HEALTHY)
def data_bound(case: LoaderCase) -> Iterator[Finding]:
    return _waiting(case) if case.is_live else _measured(case)


def _measured(case: LoaderCase) -> Iterator[Finding]:
    written = next((trial for trial in case.trials if trial.is_as_written), None)
    now = rate(written) if written else None
    points = measured(case.trials)
    if written is None or not now or not points or later_s(written) < SHORTEST_S:
        return
    best = max(points, key=lambda point: point.samples_per_s)
    batches_per_s = written.batches / max(written.seconds, 1e-9)
    if best.samples_per_s < FASTER * now or batches_per_s > ENOUGH_PER_S:
        return
    run = "antifreeze run {script}" if best.engine == "antifreeze" else f"DataLoader(…, num_workers={best.workers})"
    yield Finding(
        weight=Weight.POSSIBLE,
        what=f"loading could be {best.samples_per_s / now:.1f} times as fast",
        where=case.built_at,
        why=f"{now:.0f} samples a second with {written.workers} workers as written, {best.samples_per_s:.0f} with "
        f"{best.workers} on {best.engine}; it matters if the training step is faster than loading",
        fix=(run, "antifreeze run --stats {script}   (tells how long the training waits)"),
        evidence=tuple(f"{p.engine}, {p.workers} workers: {p.samples_per_s:.0f}/s" for p in points[:6]),
        rivals=("AF402", "AF403"),
        decide="antifreeze run --stats {script}",
    )


def _waiting(case: LoaderCase) -> Iterator[Finding]:
    """A program that runs now, and waits while all its workers compute."""
    trial = case.trials[0]
    workers = [each for each in trial.stuck if each.role == "worker"]
    busy = [each for each in workers if is_at_work(each, trial) and wait_of(each, case) is Wait.RUNNING]
    if len(workers) < 2 or len(busy) < len(workers):
        return
    place = next((each.place for each in busy if each.place), None)
    yield Finding(
        weight=Weight.POSSIBLE,
        what=f"the training waits for its loader, and all {len(workers)} workers compute",
        where=place,
        why=f"the workers are busy{at(place)}: loading is slow, or a sample does not come to an end",
        fix=("more workers, if there are processors for them", "antifreeze run --stats {script}"),
        evidence=(f"{len(busy)} workers at {100 * min(each.cpu_share for each in busy):.0f} % CPU or more",),
        rivals=("AF108",),
        decide="antifreeze run --stats {script}",
    )
