"""A worker waits for threads that exist only in the training process.

What happens: a forked worker gets a copy of everything but the threads. A thread pool, an event loop or a queue with a
thread behind it that was made before the workers looks complete in them: it takes the job, and nobody ever does it. The
worker waits for ever, at 0 % CPU, and the training waits for the worker. No message appears.

How we know: in a trial, or in the program as it stands, a worker waits for another thread (in `concurrent.futures`,
`asyncio`, `queue` or `threading`), it was forked, and the dataset holds the pool that was made before. Without workers
it works.

What to do: `antifreeze run train.py`: such a loader's workers start in a process without lost threads. In your code:
make the pool where it is used, once per worker: `self.pool = antifreeze.per_worker(lambda: ThreadPoolExecutor(2))`,
then `self.pool().map(…)`. Or `multiprocessing_context="forkserver"`, if the dataset can be pickled.

Looks like: AF102 lost-native-pool, the same with threads of a native library; AF104 inherited-lock, where a lock stays
locked; AF103 sample-hangs, where the thread lives and waits for the network.

Read on: https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#avoiding-and-fighting-deadlocks,
https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods,
https://docs.python.org/3/library/os.html#os.fork
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import CAME, LoaderCase, at, touches, whose
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, stuck_worker, tried, with_workers
from antifreeze.doctor.facts import Held, Loader, Outcome, Place, Stuck, Trial
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.handles import own_name
from antifreeze.doctor.waits import Wait, hangs_alone, never_returned, state_of, stuck_in

KINDS = ("executor", "thread", "loop")

_LINE = Place("train.py", 35, "__getitem__", "return list(self.pool.map(read, range(3)))")
_TRIAL = as_written(
    Outcome.HANG,
    stuck=(stuck_worker(_LINE, inside=(Place("/usr/lib/python3.11/concurrent/futures/_base.py", 451, "result"),)),),
)
_POOL = Held(path="dataset.pool", kind="executor", what="a ThreadPoolExecutor", place=Place("train.py", 28))
SICK = tried(
    Loader(number=0, num_workers=2, start_method="fork", held=(_POOL,)),
    _TRIAL,
    with_workers(0),
    Trial(loader=0, engine="antifreeze", workers=2, outcome=Outcome.OK),
)
HEALTHY = tried(Loader(number=0, num_workers=2, start_method="fork", held=(_POOL,)), as_written())


@check("AF101", "fork-after-threads", sick=SICK, healthy=HEALTHY)
def fork_after_threads(case: LoaderCase) -> Iterator[Finding]:
    seen = list(stuck_in(case, Wait.THREAD))
    if not seen or not case.is_forked:
        return
    _, stuck = seen[0]
    if _has_threads(case, stuck) or hangs_alone(case, stuck):
        return
    pool = _pool(case, stuck)
    lost = f"the threads of {whose(pool)}" if pool else _threads(case) or "the threads that should do it"
    is_proven = pool is not None and case.works_without_workers is not False
    # Threads of a program that has some, and works where they are.
    is_likely = pool is not None or case.is_live or bool(_threads(case) and case.works_without_workers)
    yield Finding(
        weight=case.sure(is_proven=is_proven) if is_likely else Weight.POSSIBLE,
        what=never_returned(stuck, case),
        where=stuck.place,
        why=f"it waits for a thread{at(stuck.place)}, but {lost} exist only in the training process: a fork "
        "copies none",
        fix=_fix(case, pool),
        evidence=(case.counted({each.workers: each for each, _ in seen}.values()), state_of(stuck)),
        seen=stuck,
        rivals=() if is_likely else ("AF103",),
        decide=None if is_likely else f"antifreeze dump {stuck.pid}",
    )


def _fix(case: LoaderCase, pool: Held | None) -> tuple[str, ...]:
    name = own_name(pool.path, pool.place) if pool else "self.x"
    if pool is not None and pool.kind == "executor":
        own = f"in each worker: {name} = antifreeze.per_worker(lambda: ThreadPoolExecutor(2)), then {name}().map(…)"
    else:
        own = f"start the thread in each worker: {name} = antifreeze.per_worker(make_it), then use {name}()"
    is_pickled = not case.loader.obstacles
    clean = ('DataLoader(…, multiprocessing_context="forkserver")',) if is_pickled else ()
    ours = [trial for trial in case.trials if trial.engine == "antifreeze" and trial.outcome in CAME]
    run = (
        ("antifreeze run {script}",) if ours or case.is_live or len(case.trials) < 2 else ()
    )  # else it was tried, in vain
    return *run, own, *clean


def _pool(case: LoaderCase, stuck: Stuck) -> Held | None:
    pools = [held for held in case.held if held.kind in KINDS]
    named = [held for held in pools if touches(held, (stuck.place, *stuck.frames))]
    return next(iter(named or pools), None)


def _threads(case: LoaderCase) -> str:
    names = case.loader.threads
    return f"the threads {', '.join(names[:4])}" if names else ""


def _has_threads(case: LoaderCase, stuck: Stuck) -> bool:
    """Whether the worker of a running program has the threads that it waits for: then they are what is stuck."""
    if not case.is_live:
        return False
    pictures = [process for process in case.facts.processes if process.pid == stuck.pid]
    others = [thread for picture in pictures for thread in picture.threads if not thread.is_main]
    return any("concurrent/futures/thread.py" in frame.file for thread in others for frame in thread.frames)
