"""All workers are started again for every epoch, and that is slow here.

What happens: without `persistent_workers=True` torch ends its workers after each epoch and starts new ones. With fork
that takes milliseconds. With spawn and forkserver each of them imports torch and your script, and receives the dataset
as a pickle: seconds in which the training waits, epoch after epoch. And whatever a dataset prepares on its first
sample (an index, a model, a connection), new workers prepare anew, forked ones, too.

How we know: the start method, and a loop around the loop over the loader. A trial measures the time to the first batch
against that of the others; without one we can only say that it is possible, for an epoch may be long. Of forked workers
we say so if the first sample of a worker takes a second or more longer than the others, and a fifth of the epoch.

What to do: `DataLoader(…, persistent_workers=True)`; mind AF503, if the dataset changes between epochs. Workers that are
kept draw other random numbers than new ones would, from the second epoch on. `antifreeze run train.py` keeps workers only
where the loader says so; otherwise it starts new ones as well, from a process that has torch imported.

Looks like: AF109 timeout-too-short and AF406 data-bound, where the first batch, or every batch, is slow for other
reasons.

Read on: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader (`persistent_workers`)
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Facts, Loader, LoaderCall, LoaderLoop, Outcome, Place, Source
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.speeds import batch_s

# Below this share of an epoch, nobody would notice; from there on it is worth a line in the script.
WORTH_TELLING = 0.05
HEAVY = 0.2
# A first sample that takes so much longer than the others prepares something.
LONG_S = 1.0

_CALL = LoaderCall(place=Place("train.py", 31), workers=2, start_method="spawn")
_SOURCE = Source(
    script="train.py",
    loaders=(_CALL,),
    loops=(LoaderLoop(place=Place("train.py", 36), loader=_CALL.place, epochs=Place("train.py", 33)),),
)
_LIVE = Loader(number=0, built_at=_CALL.place, num_workers=2, start_method="spawn", batches=4)


def _facts(first_batch_s: float) -> Facts:
    trial = as_written(batches=4, samples=16, seconds=first_batch_s + 0.03, first_batch_s=first_batch_s)
    return tried(_LIVE, trial, source=_SOURCE)


SICK = _facts(first_batch_s=3.1)
HEALTHY = _facts(first_batch_s=0.01)


@check("AF401", "workers-restarted", sick=SICK, healthy=HEALTHY)
def workers_restarted(case: LoaderCase) -> Iterator[Finding]:
    epochs = next((loop.epochs for loop in case.loops if loop.epochs), None)
    if epochs is None or case.call is None:
        return
    if not case.imports_again:
        yield from _prepared_again(case, epochs)
        return
    is_made_anew = case.call.is_in_loop
    if case.is_persistent is not False and not is_made_anew:
        return
    start_s, share = _cost(case)
    if share is not None and share < WORTH_TELLING:
        return
    is_measured = start_s is not None and share is not None
    costs = f", {start_s:.1f} s per epoch" if start_s is not None else ""
    yield Finding(
        weight=_weight(case, share, epochs),
        what=f"all workers are started again for every epoch{costs}",
        where=case.built_at,
        why=f"start method {case.start_method} imports torch and the script in every new worker, and the loop at "
        f"{epochs} makes them new each time it comes round",
        fix=(
            "make the loader once, before the loop: DataLoader(…, persistent_workers=True)"
            if is_made_anew
            else "DataLoader(…, persistent_workers=True)",
            "antifreeze run {script}",
        ),
        evidence=(f"the first batch comes after {start_s:.1f} s, {share:.0%} of an epoch",)
        if is_measured
        else ("read in the source",),
    )


def _prepared_again(case: LoaderCase, epochs: Place) -> Iterator[Finding]:
    """Forked workers start at once; what each of them does for its first sample may still cost every epoch dear."""
    trial = case.as_written
    warm_up_s = trial.warm_up_s if trial else None
    if trial is None or warm_up_s is None or case.is_persistent is not False or not trial.is_whole_epoch:
        return
    share = warm_up_s / max(trial.seconds, 1e-9)
    if warm_up_s < LONG_S or share < HEAVY:
        return
    yield Finding(
        weight=Weight.POSSIBLE,
        what=f"new workers prepare themselves in every epoch, {warm_up_s:.1f} s of {trial.seconds:.1f} s",
        where=case.built_at,
        why=f"the first sample of a worker takes {warm_up_s:.1f} s longer than the others, and the loop at {epochs} "
        "starts new workers each time it comes round",
        fix=("DataLoader(…, persistent_workers=True)", "prepare it in __init__: forked workers inherit it"),
        evidence=(f"{warm_up_s:.1f} s for the first sample of a worker, {share:.0%} of an epoch",),
        rivals=("AF406",),
        decide="antifreeze run --stats {script}",
    )


def _weight(case: LoaderCase, share: float | None, epochs: Place) -> Weight:
    if share is None or not case.workers:
        return Weight.POSSIBLE
    if case.call is not None and case.call.is_in_loop:  # it may be over other data in each turn: folds, years
        return Weight.LIKELY if share >= HEAVY and "epoch" in epochs.text.lower() else Weight.POSSIBLE
    return Weight.CERTAIN if share >= HEAVY else Weight.LIKELY


def _cost(case: LoaderCase) -> tuple[float | None, float | None]:
    """Seconds that the start takes, and their share of an epoch; None where no trial tells."""
    trial = case.as_written
    each_s = batch_s(trial) if trial and trial.outcome is Outcome.OK else None
    if trial is None or each_s is None:
        return None, None
    start_s = max(0.0, (trial.first_batch_s or 0.0) - each_s)
    batches = case.loader.batches or trial.batches
    return start_s, start_s / max(start_s + batches * each_s, 1e-9)
