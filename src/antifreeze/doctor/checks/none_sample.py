"""`__getitem__` returns None for some samples, and a batch cannot be made of them.

What happens: the dataset catches an error and returns None, meaning "skip this". `default_collate` does not know that;
it fails with "batch must contain tensors … found <class 'NoneType'>" or, in a worker, `'NoneType' object has no
attribute 'numel'`. The message names neither the sample nor the error that was swallowed.

How we know: None came for a sample in a trial; the exception that the dataset's own `except` had caught was watched.

What to do: let the error through and use `antifreeze run --on-error skip train.py`, which leaves the sample out and
lists it. Or a collate_fn that drops None: `collate_fn=lambda batch: default_collate([x for x in batch if x is not
None])`, at the price of uneven batches.

Looks like: AF326 samples-do-not-stack, where a sample is there but is not like the others.

Read on: https://docs.pytorch.org/docs/stable/data.html#working-with-collate-fn
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import CAME, LoaderCase, at, first_line, sights_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, Outcome, Place, Raised, Sight, Trial
from antifreeze.doctor.finding import Finding, Weight

_LOADER = Loader(number=0, num_workers=2, start_method="fork", dataset_at=Place("train.py", 19))
_RAISED = Raised(
    type="AttributeError",
    message="'NoneType' object has no attribute 'numel'",
    stage="collate",
    sample="9",
    swallowed="OSError: cannot identify image file",
)
SICK = tried(_LOADER, as_written(Outcome.ERROR, raised=_RAISED, none_samples=("9",)))
HEALTHY = tried(
    Loader(number=0, num_workers=2, start_method="fork", has_default_collate=False), as_written(none_samples=("9",))
)


@check("AF329", "none-sample", sick=SICK, healthy=HEALTHY)
def none_sample(case: LoaderCase) -> Iterator[Finding]:
    yield from _seen(case)
    yield from _read(case)


def _seen(case: LoaderCase) -> Iterator[Finding]:
    failed = [trial for trial in case.trials if _is_about_none(trial)]
    if not failed or any(_is_of_a_part(trial) for trial in case.trials):
        return
    trial = failed[0]
    raised = trial.raised
    batch = [each for each in trial.none_samples if raised and each in raised.batch]
    sample = next(iter(batch or trial.none_samples), None) or (raised.sample if raised else None)
    is_empty = raised is not None and len(batch) == len(raised.batch) > 1 and not _has_default_collate(case)
    sight = _return(case)
    swallowed = _swallowed(case)
    place = (raised.culprit_at if raised else None) or (sight.place if sight else None)
    place = place or case.loader.dataset_at
    hidden = f" {first_line(swallowed)}" if swallowed else ""
    said = f"{raised.type}: {first_line(raised.message)}" if raised else ""
    name = f"sample {sample}" if sample is not None else "a sample"
    if is_empty:
        name = f"every sample of a batch ({', '.join(batch[:8])})"
    yield Finding(
        weight=Weight.CERTAIN if trial.none_samples or swallowed else Weight.LIKELY,
        what=f"the dataset returns None for {name}, and no batch can be made of it",
        where=place,
        why=f"None is returned for {name}{at(place)}, and collating it fails ({said}).{hidden}",
        fix=(
            "let the error through, and leave the sample out by: antifreeze run --on-error skip {script}",
            "let collate_fn return None for an empty batch, and skip it in the loop: if batch is None: continue"
            if is_empty
            else "collate_fn=lambda batch: default_collate([x for x in batch if x is not None])",
        ),
        evidence=(case.counted(failed), *((f"swallowed: {first_line(swallowed)}",) if swallowed else ())),
        seen=raised,
        sample=sample,
    )


def _has_default_collate(case: LoaderCase) -> bool:
    return case.loader.has_default_collate


def _swallowed(case: LoaderCase) -> str:
    """What the dataset's own `except` caught."""
    told = [trial.raised.swallowed for trial in case.trials if trial.raised]
    told += [text for trial in case.trials for text in trial.swallowed.values()]
    return next((text for text in told if text), "")


def _is_about_none(trial: Trial) -> bool:
    if trial.outcome in CAME or trial.raised is None or trial.raised.stage not in ("collate", "fetch", "send"):
        return False
    if trial.raised.swallowed:
        return True
    if trial.none_samples:
        return trial.raised.stage == "collate"
    return trial.raised.stage == "collate" and "NoneType" in trial.raised.message


def _is_of_a_part(trial: Trial) -> bool:
    """Whether only a part of a sample is None: that sample is not like the others."""
    culprit = trial.raised.culprit if trial.raised and trial.raised.stage == "collate" else ""
    return bool(culprit) and not culprit.startswith("it is None") and not trial.none_samples


def _return(case: LoaderCase) -> Sight | None:
    """The only line in the source that returns None in an `except`."""
    found = sights_in(case.source.datasets, "returns-none-in-except")
    return found[0] if len(found) == 1 else None


def _read(case: LoaderCase) -> Iterator[Finding]:
    for dataset in case.unrun_datasets:
        sight = next(iter(sights_in([dataset], "returns-none-in-except")), None)
        has_own_collate = "collate_fn" in case.arguments
        if sight is None or has_own_collate or case.has_workers() is False:
            continue
        yield Finding(
            weight=Weight.POSSIBLE,
            what="the dataset returns None for samples that it cannot read, and no batch can be made of them",
            where=sight.place,
            why=f"None is returned at {sight.place}{f', for what {sight.also} caught' if sight.also else ''}, and "
            f"the loader at {case.built_at} has no collate_fn that would drop it",
            fix=(
                "let the error through, and leave such samples out by: antifreeze run --on-error skip {script}",
                "collate_fn=lambda batch: default_collate([x for x in batch if x is not None])",
            ),
            evidence=("as the source has it",),
        )
