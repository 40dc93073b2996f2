"""`worker_init_fn` raises, so no worker can begin.

What happens: the function runs once in every new worker. If it raises, the training ends before the first batch. The
most frequent case: `np.random.seed(torch.initial_seed() + worker_id)` fails with "Seed must be between 0 and 2**32 -
1", as torch's seed has 64 bits.

How we know: the exception came in a trial, from worker_init_fn.

What to do: mend the line that is named. A worker_init_fn that only seeds numpy can go: since torch 1.9 the generators
of `random`, `numpy` and `torch` are seeded in every worker, differently in each and in each epoch. Otherwise:
`np.random.seed(torch.initial_seed() % 2**32)`.

Looks like: AF505 fixed-worker-seed, where it works and makes all epochs alike; AF314 worker-exited, where a worker ends
at its start.

Read on: https://docs.pytorch.org/docs/stable/data.html#randomness-in-multi-process-data-loading,
https://docs.pytorch.org/docs/stable/notes/randomness.html#dataloader
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, first_line, raised_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import FORKED, as_written, tried
from antifreeze.doctor.facts import Outcome, Place, Raised
from antifreeze.doctor.finding import Finding, Weight

_RAISED = Raised(
    type="ValueError",
    message="Seed must be between 0 and 2**32 - 1",
    stage="init",
    place=Place("train.py", 30),
    worker=0,
)
SICK = tried(FORKED, as_written(Outcome.ERROR, raised=_RAISED))
HEALTHY = tried(FORKED, as_written())


@check("AF323", "worker-init-fails", sick=SICK, healthy=HEALTHY)
def worker_init_fails(case: LoaderCase) -> Iterator[Finding]:
    failed = [trial for trial in raised_in(case, "init") if trial.outcome is not Outcome.HANG]
    raised = failed[0].raised if failed else None
    if raised is None:
        return
    is_seed = "2**32" in raised.message or "seed" in raised.message.lower()
    init_at = case.loader.worker_init_at
    yield Finding(
        weight=Weight.CERTAIN,
        what="worker_init_fn fails, so no worker can begin",
        where=raised.place or init_at,
        why=f"{raised.type}{at(raised.place)}: {first_line(raised.message)}",
        fix=(
            "leave worker_init_fn out: torch seeds numpy in its workers itself",
            "np.random.seed(torch.initial_seed() % 2**32)",
        )
        if is_seed
        else (f"mend the line{at(raised.place)}",),
        evidence=(case.counted(failed),),
        worker=raised.worker,
    )
