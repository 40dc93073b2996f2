"""`timeout=` ends a training whose workers are healthy, because the first batch is slow.

What happens: `DataLoader(timeout=3)` raises when the next batch does not come in 3 seconds. The first batch of a worker
may need longer than all others: imports, an index that is built once, a cold disk. The error, "DataLoader timed out
after 3 seconds", names neither worker nor sample.

How we know: the error came in a trial, and with more time, or without workers, the batches come.

What to do: `antifreeze run train.py`: its message says who was at what, and without `timeout=` none is needed. With
torch's loader: a `timeout=` of several times the slowest batch, or 0, its default; or do the slow part once, in
`__init__` or `worker_init_fn`.

Looks like: AF103 sample-hangs, where no time-out would be long enough.

Read on: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader (`timeout`)
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import CAME, LoaderCase, at
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried, with_workers
from antifreeze.doctor.facts import Loader, Outcome, Place, Raised, Stuck
from antifreeze.doctor.finding import Finding, Weight

MESSAGE = "DataLoader timed out"

_LOADER = Loader(number=0, num_workers=2, start_method="fork", timeout_s=3, built_at=Place("train.py", 37))
_RAISED = Raised(type="RuntimeError", message="DataLoader timed out after 3 seconds", stage="receive")
_SLOW = Stuck(role="worker", worker=0, pid=4243, sample="0", seconds=3, place=Place("train.py", 30), stage="fetch")
_TRIAL = as_written(Outcome.ERROR, raised=_RAISED, stuck=(_SLOW,))
SICK = tried(_LOADER, _TRIAL, with_workers(0, first_batch_s=5.1))
HEALTHY = tried(_LOADER, as_written())


@check("AF109", "timeout-too-short", sick=SICK, healthy=HEALTHY)
def timeout_too_short(case: LoaderCase) -> Iterator[Finding]:
    trial = next((each for each in case.trials if each.raised and MESSAGE in each.raised.message), None)
    if trial is None or (not trial.is_as_written and case.is_found and not case.loader.timeout_s):
        return
    came = [each for each in case.trials if each.outcome in CAME]
    hangs = any(each.outcome is Outcome.HANG for each in case.trials)
    if hangs and not came:
        return
    limit = f"timeout={case.loader.timeout_s:g}" if case.loader.timeout_s else "timeout"
    slow = next((stuck for stuck in trial.stuck if stuck.place and stuck.stage != "idle"), None)
    took = max((each.first_batch_s or 0 for each in came), default=0.0)
    needs = max(30.0, 10 * took)
    line = (
        f", at {slow.place} (sample {slow.sample})"
        if slow and slow.sample is not None
        else at(slow.place if slow else None)
    )
    needed = f"the first batch takes {took:.1f} s" if took else "a batch takes longer than that"
    yield Finding(
        weight=Weight.CERTAIN if came else Weight.POSSIBLE,
        what=f"the training ends with a time-out although its workers get on: {limit} is too short",
        where=case.built_at or (slow.place if slow else None),
        why=f"{limit}{at(case.built_at)} limits every wait for a batch, and {needed}{line}",
        fix=(
            "antifreeze run {script}",
            f"DataLoader(…, timeout={needs:.0f}), or leave timeout out",
            "do the slow part before training",
        ),
        evidence=(
            f"reproduced: {trial.raised.message if trial.raised else MESSAGE}",
            f"with more time {len(came)} trials work",
        ),
        seen=slow,
        sample=slow.sample if slow else None,
        rivals=() if came else ("AF103",),
        decide=None if came else "antifreeze run {script}",
        is_cause=bool(came),
    )
