"""A lock lets only one worker read at a time.

What happens: a lock that all workers share is held while a sample is read. So they read one after the other, and more
workers make nothing faster. (A `threading.Lock` is no such lock: every worker has its own.)

How we know: the source shows a lock of multiprocessing, or a file lock on one path, around the reading, or around all
of `__getitem__`; that alone is possible, for the lock may be held briefly. A trial measures the share of their time
that workers wait for it, and whether several are faster than one.

What to do: give each worker what the lock protects: open the file on first use in the worker, and drop the lock. Else
hold it for less: read under the lock, decode outside of it.

Looks like: AF107 abandoned-lock, where the holder is dead; AF404 too-many-workers, where processors are the limit.

Read on: https://docs.python.org/3/library/multiprocessing.html#synchronization-between-processes
"""

from __future__ import annotations

from antifreeze.doctor.cases import LoaderCase, sights_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import DatasetClass, Facts, Loader, LoaderCall, Outcome, Place, Sight, Source
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.speeds import speed

# Of the workers' time: half of it spent waiting cannot be anything else; below a tenth it is not worth a change.
HIGH_SHARE = 0.5
LOW_SHARE = 0.1
# Several workers that are not faster than one by so much are not faster.
FASTER = 1.2
_OWN_TO_A_WORKER = ("threading.",)

_CALL = LoaderCall(place=Place("train.py", 40), workers=4, datasets=("Locked",))
_LOCK = Sight(kind="lock-around-read", what="self.lock", place=Place("data.py", 34), made_by="multiprocessing.Lock")


def _facts(lock_share: float) -> Facts:
    return tried(
        Loader(number=0, built_at=_CALL.place, num_workers=4, dataset="data.Locked"),
        as_written(workers=4, lock_share=lock_share),
        source=Source(
            script="train.py",
            loaders=(_CALL,),
            datasets=(DatasetClass(name="Locked", place=Place("data.py", 20), sights=(_LOCK,)),),
        ),
    )


SICK = _facts(lock_share=0.7)
HEALTHY = _facts(lock_share=0.01)


@check("AF403", "lock-around-reads", sick=SICK, healthy=HEALTHY)
def lock_around_reads(case: LoaderCase) -> list[Finding]:
    if case.workers in (0, 1):
        return []
    share = case.as_written.lock_share if case.as_written else None
    if share is not None and share < LOW_SHARE:
        return []
    locks = sights_in(case.datasets, "lock-around-read")
    return [_finding(case, lock, share=share) for lock in locks if not lock.made_by.startswith(_OWN_TO_A_WORKER)]


def _finding(case: LoaderCase, sight: Sight, *, share: float | None) -> Finding:
    alone, together = _speeds(case)
    is_slow = alone is not None and together is not None and together < FASTER * alone
    evidence = [] if share is None else [f"workers wait for a lock for {share:.0%} of their time"]
    if is_slow:
        evidence.append(f"{case.workers} workers: {together:.0f} samples/s, one: {alone:.0f}")
    return Finding(
        weight=_weight(share, is_slow=is_slow),
        what="only one worker reads at a time",
        where=sight.place,
        why=f"{sight.what} ({sight.made_by}) is shared by all workers, and it is held while a sample is read",
        fix=("open what the lock protects in the worker, on first use, and drop the lock",),
        evidence=tuple(evidence) or ("read in the source",),
        decide=None if share is not None else "antifreeze doctor {script}",
    )


def _weight(share: float | None, *, is_slow: bool) -> Weight:
    if share is None:
        return Weight.LIKELY if is_slow else Weight.POSSIBLE
    return Weight.CERTAIN if share >= HIGH_SHARE else Weight.LIKELY


def _speeds(case: LoaderCase) -> tuple[float | None, float | None]:
    """Samples per second of one worker and of all; None where that was not measured, or there is one processor only."""
    machine, trial = case.facts.machine, case.as_written
    if machine is None or machine.usable_cpus < 2 or trial is None or case.number is None:
        return None, None
    one = case.facts.trial(case.number, engine="torch", workers=1)
    if one is None or one.outcome is not Outcome.OK or trial.outcome is not Outcome.OK:
        return None, None
    return speed(one), speed(trial)
