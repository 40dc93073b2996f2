"""There are more workers than processors to run them.

What happens: workers share the processors that this process may use: those of its cgroup or affinity, in a container
often far fewer than the machine has. More workers than that take turns; they cost memory and start-up time each, and,
if samples are computed and not waited for, bring nothing.

How we know: num_workers against the processors that are usable. Workers that wait for a disk or a server may well be
more, so we only call it possible, until a trial shows that fewer are as fast: then it is likely.

What to do: `num_workers` as the doctor recommends it, or `len(os.sched_getaffinity(0))` at most. In a container, more
processors: `docker run --cpus=8`.

Looks like: AF901 few-processors, which is about the machine; AF406 data-bound, where no number of workers is enough.

Read on: https://docs.python.org/3/library/os.html#os.sched_getaffinity,
https://docs.docker.com/engine/containers/resource_constraints/#cpu
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.facts import Facts, LoaderCall, Machine, Outcome, Place, Source, Trial
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.speeds import later_s, speed

# As fast, within what two measurements of the same differ by.
AS_FAST = 0.95
# Shorter measurements tell more about the start of processes than about loading.
LEAST_S = 1.0


def _facts(usable_cpus: int) -> Facts:
    call = LoaderCall(place=Place("train.py", 40), workers=16)
    machine = Machine(cpus=64, usable_cpus=usable_cpus)
    return Facts(machine=machine, source=Source(script="train.py", loaders=(call,)))


SICK = _facts(usable_cpus=4)
HEALTHY = _facts(usable_cpus=16)


@check("AF404", "too-many-workers", sick=SICK, healthy=HEALTHY)
def too_many_workers(case: LoaderCase) -> Iterator[Finding]:
    machine, is_asked_for = case.facts.machine, case.is_found or case.call is not None
    if machine is None or not is_asked_for or case.workers is None or case.workers <= machine.usable_cpus:
        return
    fewer = _as_fast(case, usable=machine.usable_cpus)
    enough = fewer.workers if fewer else machine.usable_cpus
    of = f" of the {machine.cpus} that the machine has" if machine.cpus > machine.usable_cpus else ""
    yield Finding(
        weight=Weight.LIKELY if fewer else Weight.POSSIBLE,
        what=f"{case.workers} workers take turns on {machine.usable_cpus} processors",
        where=case.built_at,
        why=f"this process may use {machine.usable_cpus} processors{of}, and num_workers is {case.workers}",
        fix=(f"DataLoader(…, num_workers={enough})",),
        evidence=(f"{enough} workers are as fast",) if fewer else (f"{case.workers} > {machine.usable_cpus}",),
        decide=None if fewer else "antifreeze doctor {script}",
    )


def _as_fast(case: LoaderCase, *, usable: int) -> Trial | None:
    """The trial with the fewest workers that is as fast as the loader is as it is written."""
    written = case.as_written
    if written is None or written.outcome is not Outcome.OK or (goal := speed(written)) is None:
        return None
    if later_s(written) < LEAST_S:
        return None
    found = [
        trial
        for trial in case.facts.trials
        if (trial.loader, trial.engine, trial.outcome) == (case.number, "torch", Outcome.OK)
        and 0 < trial.workers <= usable
        and later_s(trial) >= LEAST_S
        and (speed(trial) or 0.0) >= AS_FAST * goal
    ]
    return min(found, key=lambda trial: trial.workers, default=None)
