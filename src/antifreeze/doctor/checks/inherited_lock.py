"""A worker waits for a lock that was locked when it was forked.

What happens: a fork copies a lock as it is. If a thread of the training process held it at that moment, it is locked in
the worker for ever: the thread that would release it was not copied. The worker waits at 0 % CPU, and the training
waits for the worker.

How we know: a forked worker waits for a lock of threads, in a line that takes one. If the dataset holds a lock that was
locked before the workers started, that is it.

What to do: `antifreeze run train.py`: a worker that is stuck in an inherited lock is replaced by one from a clean
process. In your code: make the lock where it is used, in each worker: `self.lock =
antifreeze.per_worker(threading.Lock)`, then `with self.lock():`; or do not let other threads use the dataset while
workers start.

Looks like: AF101 fork-after-threads, where the worker waits for a thread's work; AF107 abandoned-lock, for locks that
processes share. The locks of Python's `logging` are often blamed; Python renews them in a fork.

Read on: https://docs.python.org/3/library/threading.html#lock-objects,
https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#avoiding-and-fighting-deadlocks
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, touches, whose
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, stuck_worker, tried
from antifreeze.doctor.facts import Held, Loader, Outcome, Place
from antifreeze.doctor.finding import Finding
from antifreeze.doctor.handles import own_name
from antifreeze.doctor.waits import Wait, hangs_alone, never_returned, state_of, stuck_in

_LINE = Place("data.py", 57, "__getitem__", "with self.lock:")
_LOCK = Held(path="dataset.lock", kind="lock", what="a locked _thread.lock", place=Place("data.py", 20), is_deadly=True)
SICK = tried(
    Loader(number=0, num_workers=2, start_method="fork", held=(_LOCK,)),
    as_written(Outcome.HANG, stuck=(stuck_worker(_LINE),)),
)
HEALTHY = tried(Loader(number=0, num_workers=2, start_method="fork", held=(_LOCK,)), as_written())


@check("AF104", "inherited-lock", sick=SICK, healthy=HEALTHY)
def inherited_lock(case: LoaderCase) -> Iterator[Finding]:
    seen = list(stuck_in(case, Wait.LOCK))
    if not seen or not case.is_forked:
        return
    _, stuck = seen[0]
    if stuck.role == "trainer":  # without workers nothing was inherited
        return
    locks = [held for held in case.held if held.kind == "lock"]
    lock = next((held for held in locks if touches(held, [stuck.place])), None)
    own = own_name(lock.path, lock.place) if lock else "self.lock"
    name = whose(lock) if lock else f"the lock{at(stuck.place)}"
    is_proven = lock is not None and lock.is_deadly
    if hangs_alone(case, stuck) and not is_proven:
        return
    yield Finding(
        weight=case.sure(is_proven=is_proven),
        what=never_returned(stuck, case),
        where=stuck.place,
        why=f"{name} was locked when the worker was forked, and the thread that held it exists only in the "
        f"training process{_threads(case)}",
        fix=(
            "antifreeze run {script}",
            f"make the lock in each worker: {own} = antifreeze.per_worker(threading.Lock), then with {own}():",
        ),
        evidence=(case.counted({each.workers: each for each, _ in seen}.values()), state_of(stuck)),
        seen=stuck,
    )


def _threads(case: LoaderCase) -> str:
    """Those that may have held it."""
    names = case.loader.threads
    return f"; running there: {', '.join(names[:4])}" if names else ""
