"""The dataset starts processes, and torch's workers may not.

What happens: torch's workers are daemons, and `multiprocessing` forbids daemons to have children.
`multiprocessing.Pool` or `Process` in `__getitem__` fails with "daemonic processes are not allowed to have children".

How we know: the error came in a trial; or the source makes a pool of processes in code that runs per sample.

What to do: `antifreeze run train.py`: our workers may start processes. In your code: threads (`ThreadPoolExecutor`), or
no pool at all, as the workers run in parallel already.

Looks like: AF101 fork-after-threads, where a pool that was made before the workers hangs.

Read on: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Process.daemon
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, first_line, sights_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import FORKED, as_written, tried
from antifreeze.doctor.facts import (
    DatasetClass,
    Facts,
    LoaderCall,
    Outcome,
    Place,
    Raised,
    Sight,
    Source,
)
from antifreeze.doctor.finding import Finding, Weight

MESSAGE = "daemonic processes are not allowed to have children"
FIX = ("antifreeze run {script}", "use threads in the dataset: concurrent.futures.ThreadPoolExecutor")

_RAISED = Raised(type="AssertionError", message=MESSAGE, stage="fetch", place=Place("train.py", 30), sample="0")
SICK = tried(FORKED, as_written(Outcome.ERROR, raised=_RAISED))
HEALTHY = Facts(
    source=Source(
        script="train.py",
        datasets=(
            DatasetClass(
                name="Parallel",
                place=Place("train.py", 25),
                sights=(Sight(kind="process-pool", what="multiprocessing.Pool", place=Place("train.py", 30)),),
            ),
        ),
        loaders=(LoaderCall(place=Place("train.py", 36), workers=0, datasets=("Parallel",)),),
    )
)


@check("AF328", "processes-in-worker", sick=SICK, healthy=HEALTHY)
def processes_in_worker(case: LoaderCase) -> Iterator[Finding]:
    yield from _seen(case)
    yield from _read(case)


def _seen(case: LoaderCase) -> Iterator[Finding]:
    failed = [trial for trial in case.trials if trial.raised and MESSAGE in trial.raised.message]
    raised = failed[0].raised if failed else None
    if raised is None:
        return
    yield Finding(
        weight=Weight.CERTAIN,
        what="the dataset starts processes, which torch forbids its workers",
        where=raised.place,
        why=f"a process is started{at(raised.place)}, and torch's workers are daemons: {first_line(raised.message)}",
        fix=FIX,
        evidence=(case.counted(failed), raised.message[:80]),
        seen=raised,
    )


def _read(case: LoaderCase) -> Iterator[Finding]:
    for dataset in case.unrun_datasets:
        sight = next(iter(sights_in([dataset], "process-pool")), None)
        is_tried = case.has_workers()
        if sight is None or is_tried is False:
            continue
        yield Finding(
            weight=Weight.LIKELY if is_tried else Weight.POSSIBLE,
            what="the dataset starts processes, which torch forbids its workers",
            where=sight.place,
            why=f"{sight.what} at {sight.place} runs in the workers of the loader at {case.built_at}, which are daemons",
            fix=FIX,
            evidence=("as the source has it",),
        )
