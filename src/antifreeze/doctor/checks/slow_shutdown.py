"""Leaving the loop early takes five seconds for every worker that is busy.

What happens: at a `break` (or an exception, or the end of the program) torch waits up to five seconds for each worker,
one after the other, before it ends them. Two workers in the middle of long samples cost 10 seconds, sixteen 80, at
every sanity check and every `max_steps`. Nothing leaks: the workers are gone afterwards.
The same happens at the end of every epoch if the dataset has started a thread in the worker that never ends and is no
daemon: Python waits for it before the process may end.

How we know: leaving the loop while workers were busy was timed in a trial, and the source leaves a loop early, or
samples are long.

What to do: `antifreeze run train.py`: all workers together get two seconds. With torch's loader: shorter samples, or
keep the iterator and take the next batches from it later.

Looks like: AF103 sample-hangs, where the samples do not end at all; AF106 orphaned-workers, where workers stay.

Read on: https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import CAME, LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, LoaderLoop, Outcome, Place, Source, Stuck
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.waits import is_at_work

# torch waits 5 s for a worker (MP_STATUS_CHECK_INTERVAL); less is ordinary work being finished.
SLOW_S = 4.0

_LINE = Place("train.py", 25, "__getitem__", "time.sleep(60)")
_LOADER = Loader(number=0, num_workers=2, built_at=Place("train.py", 31), iterated_at=Place("train.py", 31))
SICK = tried(
    _LOADER,
    as_written(
        Outcome.SLOW,
        shutdown_s=10.0,
        stuck=(Stuck(role="worker", worker=0, pid=4243, sample="4", place=_LINE, stage="fetch", waits_in="sleep"),),
    ),
    source=Source(script="train.py", loops=(LoaderLoop(place=Place("train.py", 31), breaks=(Place("train.py", 37),)),)),
)
HEALTHY = tried(_LOADER, as_written(shutdown_s=0.1))


@check("AF405", "slow-shutdown", sick=SICK, healthy=HEALTHY)
def slow_shutdown(case: LoaderCase) -> Iterator[Finding]:
    yield from _left_early(case)
    yield from _held_by_threads(case)


def _left_early(case: LoaderCase) -> Iterator[Finding]:
    slow = [
        t for t in case.trials if t.engine == "torch" and t.workers and (t.shutdown_s or 0) >= SLOW_S and not t.deaths
    ]
    if not slow:
        return
    trial = slow[0]
    loop = case.loop
    leaves = loop.breaks if loop else ()
    if not leaves and trial.outcome not in CAME:  # what hangs or fails has another trouble
        return
    busy = next((each for each in trial.stuck if is_at_work(each, trial) and each.place), None)
    long = case.slowest
    line = busy.place if busy else None
    at_what = f" at {line}" if line else f" at sample {long.sample} ({long.seconds:.1f} s)" if long else " with samples"
    leaves_at = f"the loop is left at {leaves[0]}" if leaves else "a loop that is left early"
    yield Finding(
        weight=Weight.CERTAIN if leaves else Weight.POSSIBLE,
        what=f"leaving the loop took {trial.shutdown_s:.0f} s",
        where=leaves[0] if leaves else case.built_at,
        why=f"{leaves_at} while workers are busy{at_what}; torch waits 5 s for each of {trial.workers} workers in turn",
        fix=("antifreeze run {script}   (all workers together get 2 s)", "keep samples short"),
        evidence=(f"timed in a trial: {trial.shutdown_s:.1f} s",),
        seen=busy,
        sample=busy.sample if busy else None,
        rivals=() if leaves else ("AF103",),
        decide=None if leaves else "antifreeze run --stats {script}",
    )


def _held_by_threads(case: LoaderCase) -> Iterator[Finding]:
    """Workers that have done their work and do not end, because Python waits for their threads."""
    held = [(trial, stuck) for trial in case.trials for stuck in trial.stuck if _waits_for_threads(stuck)]
    if held and case.is_found:
        trial, stuck = held[0]
        yield Finding(
            weight=Weight.CERTAIN,
            what=f"the workers do not end when the epoch does, and torch waits 5 s for each of {trial.workers}",
            where=case.loader.dataset_at or case.built_at,
            why=f"worker {stuck.worker} (pid {stuck.pid}) has done its work, and Python waits for a thread that was "
            "started in it, is no daemon, and does not end",
            fix=("threading.Thread(…, daemon=True)", "antifreeze run {script}   (all workers together get 2 s)"),
            evidence=(case.counted([trial]), "the worker is in threading._shutdown"),
            worker=stuck.worker,
            pid=stuck.pid,
        )


def _waits_for_threads(stuck: Stuck) -> bool:
    return stuck.stage == "left" and any(
        frame.function == "_shutdown" and frame.file.endswith("threading.py") for frame in stuck.frames
    )
