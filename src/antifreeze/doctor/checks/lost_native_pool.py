"""A native library waits in a worker for its own threads, which a fork does not copy.

What happens: scikit-learn, torch, polars, tokenizers and others compute with a pool of native threads. Once the pool
was used in the training process, a forked worker believes that it still exists. The first parallel piece of work there
waits for ever, at 0 % CPU and without a message. Whether it happens can depend on the order of imports, and on the
number of threads: torch sets its own to one in workers, so it hangs only if somebody raises it again
(`torch.set_num_threads`), and tokenizers switches its pool off after a fork, unless `TOKENIZERS_PARALLELISM=true`
forbids it.

How we know: a forked worker waits for a lock below a call into native code, the trainer has used a pool of that
library, and without workers it works.

What to do: `antifreeze run train.py`: our workers start with such pools capped to one thread, or in a process that
never used them. With torch's loader: `multiprocessing_context="forkserver"`; or one thread from the start
(`OMP_NUM_THREADS=1`, `TOKENIZERS_PARALLELISM=false`); do not raise the number of threads in workers.

Looks like: AF101 fork-after-threads, the same with threads of Python. OpenCV is often blamed: it did not hang in any of
our tests.

Read on: https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#avoiding-and-fighting-deadlocks,
https://github.com/joblib/threadpoolctl, https://docs.pola.rs/user-guide/misc/multiprocessing/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, touches
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, stuck_worker, tried, with_workers
from antifreeze.doctor.facts import Loader, NativePool, Outcome, Place, Stuck
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.waits import (
    Wait,
    frames_above,
    hangs_alone,
    is_native_pool,
    never_returned,
    state_of,
    stuck_in,
)

# What keeps a library from using its pool.
SWITCHES = {
    "tokenizers": "TOKENIZERS_PARALLELISM=false python {script}",
    "openblas": "OPENBLAS_NUM_THREADS=1 python {script}",
    "mkl": "MKL_NUM_THREADS=1 python {script}",
}

_LINE = Place("train.py", 26, "anchors", "return KMeans(k).fit(points)")
_KMEANS = Place("/x/site-packages/sklearn/cluster/_kmeans.py", 700, "_kmeans_single_lloyd")
_POOL = NativePool(library="sklearn", kind="openmp", threads=8, is_used=True)
SICK = tried(
    Loader(number=0, num_workers=2, start_method="fork", pools=(_POOL,)),
    as_written(Outcome.HANG, stuck=(stuck_worker(_LINE, inside=(_KMEANS,), library="sklearn"),)),
    with_workers(0),
)
HEALTHY = tried(Loader(number=0, num_workers=2, start_method="fork", pools=(_POOL,)), as_written())


@check("AF102", "lost-native-pool", sick=SICK, healthy=HEALTHY)
def lost_native_pool(case: LoaderCase) -> Iterator[Finding]:
    seen = list(stuck_in(case, Wait.NATIVE))
    if not seen or not case.is_forked:
        return
    _, stuck = seen[0]
    if hangs_alone(case, stuck):
        return
    pool, weight = _suspect(case, stuck)
    name = pool.library if pool else stuck.library or "a native library"
    raised = [place for place in case.source.thread_settings if place.text]
    why = f"{_frame(stuck)} waits for threads of {name} that were started in the training process; a fork copies none"
    if pool and pool.why:
        why += f". {pool.why}"
    if raised:
        why += f". {raised[0].text} at {raised[0]} sets the number of threads"
    yield Finding(
        weight=weight,
        what=never_returned(stuck, case),
        where=stuck.place,
        why=why,
        fix=_fix(name, pool, is_raised=bool(raised)),
        evidence=(case.counted({each.workers: each for each, _ in seen}.values()), state_of(stuck)),
        seen=stuck,
        rivals=("AF104", "AF103") if weight is Weight.POSSIBLE else (),
        decide=f"antifreeze dump --native {stuck.pid}" if weight is Weight.POSSIBLE else None,
    )


def _suspect(case: LoaderCase, stuck: Stuck) -> tuple[NativePool | None, Weight]:
    """The pool that it waits for, and how sure that is."""
    pools = [pool for pool in case.loader.pools if pool.is_used is not False]
    sure = case.sure(is_proven=case.works_without_workers is True)
    inside = " ".join([stuck.library, *(frame.file for frame in frames_above(stuck))])
    natives = [held.what for held in case.held if held.kind == "native" and touches(held, [stuck.place])]
    for texts in ([inside], natives):
        named = [pool for pool in pools if any(re.search(rf"\b{re.escape(pool.library)}\b", text) for text in texts)]
        if named:
            return named[0], sure
    if is_native_pool(stuck.library):
        return next(iter(pools), None), Weight.LIKELY
    deadly = [pool for pool in pools if pool.why]
    line = stuck.place.text if stuck.place else ""
    written = [pool for pool in pools if pool.library and re.search(rf"\b{re.escape(pool.library)}\b", line)]
    if deadly or written:
        return (deadly or written)[0], sure if len(deadly) == 1 or written else Weight.LIKELY
    used = [pool for pool in pools if pool.is_used]
    return next(iter(used or pools), None), Weight.LIKELY if used and case.works_without_workers else Weight.POSSIBLE


def _frame(stuck: Stuck) -> str:
    return f"the call{at(stuck.place)}" if stuck.place else "a call into native code"


def _fix(name: str, pool: NativePool | None, *, is_raised: bool) -> tuple[str, ...]:
    switch = SWITCHES.get(name) or (SWITCHES.get(pool.kind) if pool else None) or "OMP_NUM_THREADS=1 python {script}"
    fewer: tuple[str, ...] = ("do not raise the number of threads in workers",) if is_raised else (switch,)
    if pool is not None and pool.kind == "rayon" and name not in SWITCHES:
        fewer = ()  # a pool of one thread is lost as well: it is not the thread that calls
    return ("antifreeze run {script}", *fewer, 'DataLoader(…, multiprocessing_context="forkserver")')
