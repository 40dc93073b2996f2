"""Something in a worker ended its process: `sys.exit`, `os._exit`, or a native library.

What happens: `sys.exit()` in `__getitem__`, or a C library that calls `exit(1)` on an error, ends the worker without a
traceback. torch says "DataLoader worker (pid(s) …) exited unexpectedly", after up to five seconds. If the worker was
sending a batch at that moment and left with exit code 0, the training waits for ever.

How we know: the exit code of the worker, the sample it was at, and the line that called exit.

What to do: raise an exception instead (`raise RuntimeError("connection lost")`). `antifreeze run train.py`: another
worker takes over; a sample that ends two is named.

Looks like: AF311 worker-killed and AF312 worker-crashed, which have a signal; with spawn a worker that exits at once,
with exit code 1, could not import or unpickle something: see AF301, AF303 and AF304.

Read on: https://docs.python.org/3/library/sys.html#sys.exit, https://docs.python.org/3/library/os.html#os._exit
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, last_line
from antifreeze.doctor.check import check
from antifreeze.doctor.deaths import deaths_in, end_of, is_at_birth, is_exit, of_worker
from antifreeze.doctor.examples import FORKED, as_written, tried
from antifreeze.doctor.facts import Death, Outcome, Place
from antifreeze.doctor.finding import Finding, Weight

_DEATH = Death(worker=1, pid=4243, exitcode=1, how="os._exit", sample="13", place=Place("train.py", 34))
SICK = tried(FORKED, as_written(Outcome.CRASH, deaths=(_DEATH,)))
HEALTHY = tried(FORKED, as_written())


@check("AF314", "worker-exited", sick=SICK, healthy=HEALTHY)
def worker_exited(case: LoaderCase) -> Iterator[Finding]:
    yield from _seen(case)
    yield from _read(case)


def _seen(case: LoaderCase) -> Iterator[Finding]:
    left = [(trial, death) for trial, death in deaths_in(case) if is_exit(death)]
    if not left:
        return
    trial, death = next(((t, d) for t, d in left if not is_at_birth(d, t)), left[0])
    at_birth = is_at_birth(death, trial)
    how = f"{death.how} was called{at(death.place)}" if death.how in ("sys.exit", "os._exit") else _by_whom(death)
    if at_birth:
        how = f"it ended before its first batch: {last_line(trial.stderr) or 'it said nothing'}"
    hangs = (
        ", and the training waits for it for ever"
        if trial.outcome is Outcome.HANG
        else ", and torch ends the training with it"
    )
    yield Finding(
        # Why a worker does not come to life has many causes, with checks of their own.
        weight=Weight.POSSIBLE if at_birth else Weight.CERTAIN,
        what=f"{of_worker(death)} ended by itself with {end_of(death)}{hangs}",
        where=death.place or case.built_at,
        why=how,
        fix=_fix(is_at_birth=at_birth, comes_again=case.works_without_workers is False),
        evidence=(case.counted({t.workers: t for t, _ in left}.values()), f"pid {death.pid}: {end_of(death)}"),
        seen=death,
        rivals=("AF301", "AF304") if at_birth else (),
        decide="antifreeze run {script}" if at_birth else None,
        is_cause=not at_birth,
    )


def _fix(*, is_at_birth: bool, comes_again: bool) -> tuple[str, ...]:
    if is_at_birth:
        return ("antifreeze run {script}",)
    if comes_again:
        return ("raise an exception instead of exiting, and then: antifreeze run --on-error skip {script}",)
    return ("raise an exception instead of exiting", "antifreeze run {script}")


def _by_whom(death: Death) -> str:
    return f"something in it called os._exit, sys.exit or C's exit{at(death.place)}: {end_of(death)}, and no signal"


def _read(case: LoaderCase) -> Iterator[Finding]:
    """`sys.exit` in code that runs per sample, in a program that was only read."""
    for dataset in case.unrun_datasets:
        for sight in dataset.sights:
            if sight.kind == "exit":
                yield Finding(
                    weight=Weight.POSSIBLE,
                    what="a worker would end without a traceback, and the training with it",
                    where=sight.place,
                    why=f"{sight.what} at {sight.place} runs in a worker, and ends that process",
                    fix=("raise an exception instead of exiting", "antifreeze run {script}"),
                    evidence=("as the source has it",),
                )
