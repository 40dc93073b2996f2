"""Everybody waits for a lock whose holder was killed.

What happens: a `multiprocessing.Lock` is a number in shared memory. If the process that holds it is killed (by the OOM
killer, by a crash), nobody takes it back: every other process that asks for it waits for ever, also new workers and the
training process.

How we know: a worker died, and a lock of the dataset cannot be taken since; or workers wait for a lock that processes
share, and one of them is dead.

What to do: `antifreeze run train.py`: such a lock is released on behalf of the dead, and the sample is read again. In
your code: `fcntl.flock`, which the kernel releases when its holder dies; or no lock at all, as reads of one file by
several processes need none. And find out what killed the worker.

Looks like: AF104 inherited-lock, for locks of threads; AF403 lock-around-reads, where the lock is released but makes
workers take turns.

Read on: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Lock,
https://docs.python.org/3/library/fcntl.html#fcntl.flock
"""

from __future__ import annotations

from antifreeze.doctor.cases import LoaderCase, at, touches, whose
from antifreeze.doctor.check import check
from antifreeze.doctor.deaths import deaths_in, end_of
from antifreeze.doctor.examples import FORKED, as_written, tried
from antifreeze.doctor.facts import Death, Held, Loader, Outcome, Place, Stuck
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.waits import Wait, is_at_work, never_returned, state_of, wait_of

FIX = (
    "antifreeze run {script}",
    "guard it with fcntl.flock(file, fcntl.LOCK_EX) instead: the kernel releases that when its holder dies",
)

SICK = tried(
    Loader(number=0, num_workers=2, start_method="fork", built_at=Place("train.py", 43)),
    as_written(
        Outcome.CRASH,
        deaths=(Death(worker=0, pid=4243, exitcode=-9, how="SIGKILL", sample="9", locks_held=("dataset.lock",)),),
    ),
)
HEALTHY = tried(
    FORKED, as_written(Outcome.CRASH, deaths=(Death(worker=0, pid=4243, exitcode=-9, how="SIGKILL", sample="9"),))
)


@check("AF107", "abandoned-lock", sick=SICK, healthy=HEALTHY)
def abandoned_lock(case: LoaderCase) -> list[Finding]:
    return _by_death(case) or _by_waiting(case)


def _by_death(case: LoaderCase) -> list[Finding]:
    deaths = [death for _, death in deaths_in(case)]
    waiting = _waiting(case)
    death = next((each for each in deaths if each.locks_held), deaths[0] if deaths and waiting else None)
    if death is None:
        return []
    lock = _lock(case, path=death.locks_held[0]) if death.locks_held else _lock(case, stuck=waiting[0])
    path = death.locks_held[0] if death.locks_held else lock.path if lock else "a lock"
    at_sample = f" at sample {death.sample}" if death.sample is not None else ""
    return [
        Finding(
            weight=Weight.CERTAIN if death.locks_held else Weight.LIKELY,
            what=f"worker {death.worker} ended{at_sample} while it held a lock, and nobody can take that lock any more",
            where=(lock.place if lock else None) or death.place or case.built_at,
            why=f"{whose(lock) if lock else path} is shared by the processes, and stays locked when its holder dies "
            f"({end_of(death)})",
            fix=FIX,
            evidence=(f"pid {death.pid}: {end_of(death)}", f"{path} cannot be taken since"),
            seen=death,
        )
    ]


def _by_waiting(case: LoaderCase) -> list[Finding]:
    """Nobody is known to have died: the holder may be gone, or be one of those who wait."""
    waiting = _waiting(case)
    if not waiting:
        return []
    stuck, lock = waiting[0], _lock(case, stuck=waiting[0])
    workers = [each for trial in case.trials for each in trial.stuck if each.role == "worker" and each.stage != "idle"]
    is_held_by_none = len(waiting) > 1 and all(each in waiting for each in workers)
    return [
        Finding(
            weight=Weight.LIKELY if is_held_by_none else Weight.POSSIBLE,
            what=never_returned(stuck, case),
            where=stuck.place,
            why=f"it waits{at(stuck.place)} for {whose(lock) if lock else 'a lock that the processes share'}; nobody who "
            "gets on holds it",
            fix=FIX,
            evidence=(f"{len(waiting)} wait for it", state_of(stuck)),
            seen=stuck,
            rivals=() if is_held_by_none else ("AF103",),
            decide=None if is_held_by_none else f"antifreeze dump {stuck.pid}",
        )
    ]


def _waiting(case: LoaderCase) -> list[Stuck]:
    """Who waits for a lock that processes share, also in a trial that somebody died in."""
    return [
        stuck
        for trial in case.trials
        if trial.outcome is Outcome.HANG
        for stuck in trial.stuck
        if is_at_work(stuck, trial) and wait_of(stuck, case) is Wait.PROCESS_LOCK
    ]


def _lock(case: LoaderCase, *, path: str | None = None, stuck: Stuck | None = None) -> Held | None:
    """The lock at this path; or that somebody waits for, as far as the line tells."""
    locks = [held for held in case.held if held.kind == "process-lock"]
    if path is not None:
        return next((held for held in case.held if held.path == path), None)
    named = [held for held in locks if touches(held, [stuck.place if stuck else None])]
    return next(iter(named or locks), None)
