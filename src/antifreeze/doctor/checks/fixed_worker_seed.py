"""worker_init_fn gives the workers the same seeds in every epoch.

What happens: torch seeds random, numpy and torch in every worker, differently for every worker and epoch. A
worker_init_fn such as `lambda worker_id: np.random.seed(worker_id)`, once the cure for an older torch, overrides that.
It runs whenever workers start, that is, for every epoch: all epochs then draw the same numbers, and every sample is
augmented in the same way again.

How we know: the seeds are made of nothing but the number of the worker and constants, and the loader is iterated for
several epochs; or a trial of two epochs, in which workers began with the same state.

What to do: drop the worker_init_fn; or seed from what torch chose: `np.random.seed(torch.initial_seed() % 2**32)`. For
runs that can be repeated, seed once in the main process: `torch.manual_seed(0)`, or `DataLoader(…, generator=…)`.

Looks like: AF501 copied-generator, where the dataset has a generator of its own; AF503 stale-dataset.

Read on: https://docs.pytorch.org/docs/stable/notes/randomness.html#dataloader,
https://docs.pytorch.org/docs/stable/data.html#randomness-in-multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, are_one
from antifreeze.doctor.check import check
from antifreeze.doctor.facts import Facts, LoaderCall, LoaderLoop, Place, Source, WorkerInit
from antifreeze.doctor.finding import Finding, Weight

_CALL = LoaderCall(place=Place("train.py", 33), workers=2)


def _facts(init: WorkerInit) -> Facts:
    loop = LoaderLoop(place=Place("train.py", 37), loader=_CALL.place, epochs=Place("train.py", 35))
    return Facts(source=Source(script="train.py", loaders=(_CALL,), loops=(loop,), worker_inits=(init,)))


SICK = _facts(
    WorkerInit(
        name="init",
        place=Place("train.py", 28),
        seeds=(Place("train.py", 29),),
        seeds_from=("worker_id",),
        is_fixed=True,
        used_by=(_CALL.place,),
    )
)
HEALTHY = _facts(
    WorkerInit(
        name="init",
        place=Place("train.py", 28),
        seeds=(Place("train.py", 29),),
        seeds_from=("torch.initial_seed",),
        is_fixed=False,
        used_by=(_CALL.place,),
    )
)


@check("AF505", "fixed-worker-seed", sick=SICK, healthy=HEALTHY)
def fixed_worker_seed(case: LoaderCase) -> Iterator[Finding]:
    init = _init(case)
    trial = case.as_written
    is_seen = trial is not None and bool(trial.same_seeds)
    has_init = init is not None or case.loader.worker_init_at is not None
    if is_seen and has_init:
        yield _finding(case, init, Weight.CERTAIN)
        return
    is_refuted = trial is not None and trial.same_seeds is False
    # Persistent workers run it once: their epochs differ.
    if init is None or init.is_fixed is False or is_refuted or case.workers == 0 or case.is_persistent:
        return
    has_epochs = any(loop.epochs for loop in case.loops)
    yield _finding(case, init, Weight.LIKELY if init.is_fixed and has_epochs and case.workers else Weight.POSSIBLE)


def _init(case: LoaderCase) -> WorkerInit | None:
    """The function of its call, if that seeds anything."""
    inits = (each for each in case.source.worker_inits if each.seeds)
    return next((each for each in inits if any(are_one(place, case.built_at) for place in each.used_by)), None)


def _finding(case: LoaderCase, init: WorkerInit | None, weight: Weight) -> Finding:
    where = init.seeds[0] if init else case.loader.worker_init_at
    name = init.name if init else "worker_init_fn"
    of = f" from {' and '.join(init.seeds_from)}" if init and init.seeds_from else ""
    return Finding(
        weight=weight,
        what="every epoch draws the same random numbers again",
        where=where,
        why=f"{name} seeds the workers{of} alone, and it runs again in every epoch; so it undoes torch's own seeding, "
        "which differs from epoch to epoch",
        fix=(
            "drop the worker_init_fn: torch seeds random, numpy and torch in every worker",
            "np.random.seed(torch.initial_seed() % 2**32)",
        ),
        evidence=("reproduced: workers of two epochs began with the same random state",)
        if weight is Weight.CERTAIN
        else ("read in the source",),
    )
