"""A worker was killed from outside, most often because memory ran out.

What happens: the kernel ends the process that needs most when memory is short (the OOM killer), or a scheduler, a user
or a script sends a signal. For torch any dead worker is the end of the training: "DataLoader worker (pid …) is killed
by signal: Killed", sometimes only `ConnectionResetError`, as batches that were on their way are lost with it.

How we know: the signal that ended it, and the kernel's counter of out-of-memory kills at that moment, where there is
one.

What to do: `antifreeze run train.py`: another worker takes over, nothing is lost, and after an out-of-memory kill one
worker fewer runs. For good: fewer workers, a smaller `prefetch_factor`, less memory per sample, a larger limit for the
container.

Looks like: AF312 worker-crashed, where the worker brought it upon itself; AF206 copy-on-write-growth and AF207
worker-memory-grows, which are often behind it.

Read on: https://man7.org/linux/man-pages/man7/signal.7.html,
https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files (`memory.events`)
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, grown_most, size
from antifreeze.doctor.check import check
from antifreeze.doctor.deaths import OWN_FAULT, deaths_in, of_worker, signal_of
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Death, Loader, Outcome, Place
from antifreeze.doctor.finding import Finding, Weight

_LOADER = Loader(number=0, num_workers=2, start_method="fork", built_at=Place("train.py", 40))
_DEATH = Death(worker=1, pid=4243, exitcode=-9, how="SIGKILL", sample="13", is_oom=False)
SICK = tried(_LOADER, as_written(Outcome.CRASH, deaths=(_DEATH,)))
HEALTHY = tried(_LOADER, as_written())


@check("AF311", "worker-killed", sick=SICK, healthy=HEALTHY)
def worker_killed(case: LoaderCase) -> Iterator[Finding]:
    killed = [
        (trial, death)
        for trial, death in deaths_in(case)
        if (signal := signal_of(death)) is not None and signal not in OWN_FAULT
    ]
    if not killed:
        return
    death = next((each for _, each in killed if each.is_oom), killed[0][1])
    yield Finding(
        weight=Weight.CERTAIN,
        what=f"{of_worker(death)} was killed by {signal_of(death)}, and torch ends the training with it",
        where=death.place or case.built_at,
        why=f"{_reason(case, death)}; the loader{at(case.built_at)} does not survive the loss of a worker",
        fix=("antifreeze run {script}", *_advice(case, death)),
        evidence=(
            case.counted({t.workers: t for t, _ in killed}.values()),
            f"pid {death.pid}: exit status {death.exitcode}",
            *(("the kernel counted an out-of-memory kill",) if death.is_oom else ()),
        ),
        seen=death,
    )


def _reason(case: LoaderCase, death: Death) -> str:
    grown = grown_most(case)
    has = f" (a worker had {size(grown.last_bytes)} for itself)" if grown else ""
    if death.is_oom:
        limit = case.facts.machine.memory_limit_bytes if case.facts.machine else None
        return (
            f"memory ran out{f', the limit is {size(limit)}' if limit else ''}, and the kernel chose this worker{has}"
        )
    if signal_of(death) != "SIGKILL":
        return f"somebody sent it {signal_of(death)}"
    if death.is_oom is False:
        return "somebody sent it SIGKILL; the kernel's counter of out-of-memory kills did not move"
    return f"somebody sent it SIGKILL, most often the kernel when memory runs out{has}; dmesg tells"


def _advice(case: LoaderCase, death: Death) -> tuple[str, ...]:
    if signal_of(death) != "SIGKILL" or death.is_oom is False:
        return ("find out who sends the signal: the scheduler's log, dmesg",)
    fewer = max(1, case.num_workers // 2)
    return (f"DataLoader(…, num_workers={fewer}, prefetch_factor=1)", "give the job more memory")
