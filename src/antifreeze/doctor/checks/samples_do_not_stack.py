"""The samples of a batch are not alike, so they cannot be put together.

What happens: `default_collate` stacks the samples of a batch. If one lacks a key, has another shape or another type, it
fails with `KeyError`, "stack expects each tensor to be equal size", or in a worker "Trying to resize storage that is
not resizable". The message does not say which sample it was.

How we know: collating failed in a trial, and the samples of that batch were compared.

What to do: make the samples alike (an empty tensor for what is missing, a resize, padding), or give a `collate_fn` that
pads, e.g. with `torch.nn.utils.rnn.pad_sequence`.

Looks like: AF329 none-sample, where a sample is None; AF204 shm-too-small, where collating fails for lack of memory.

Read on: https://docs.pytorch.org/docs/stable/data.html#working-with-collate-fn,
https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.default_collate
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, carries_gradients, first_line, loads_elsewhere, raised_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, Outcome, Place, Raised
from antifreeze.doctor.finding import Finding, Weight

_LOADER = Loader(number=0, num_workers=2, built_at=Place("train.py", 32), dataset_at=Place("train.py", 19))
_RAISED = Raised(
    type="KeyError",
    message="'boxes'",
    stage="collate",
    sample="6",
    batch=("4", "5", "6", "7"),
    culprit="it has no key 'boxes'",
)
SICK = tried(_LOADER, as_written(Outcome.ERROR, raised=_RAISED))
HEALTHY = tried(_LOADER, as_written())


@check("AF326", "samples-do-not-stack", sick=SICK, healthy=HEALTHY)
def samples_do_not_stack(case: LoaderCase) -> Iterator[Finding]:
    failed = [trial for trial in raised_in(case, "collate") if not trial.none_samples and not trial.deaths]
    raised = failed[0].raised if failed else None
    if raised is None or ("NoneType" in raised.message and not raised.culprit) or carries_gradients(raised):
        return
    # Where the others are alike elsewhere, the sample was, too: something spoilt it on the way.
    is_spoilt = loads_elsewhere(case, raised.sample) and len(failed) == 1
    weight = Weight.POSSIBLE if is_spoilt else Weight.CERTAIN if raised.sample is not None else Weight.LIKELY
    odd = f"sample {raised.sample}" if raised.sample is not None else "one of them"
    of = f"samples {', '.join(raised.batch[:8])}" if raised.batch else "its samples"
    said = f"{raised.type}: {first_line(raised.message)}"
    differs = f"{odd} is not like the others{f' ({raised.culprit})' if raised.culprit else ''}"
    place = raised.culprit_at or raised.place or case.loader.collate_at or case.loader.dataset_at
    is_users_own = not case.loader.has_default_collate and raised.sample is None
    yield Finding(
        weight=weight,
        what=f"a batch cannot be put together: {odd} does not fit",
        where=place or case.built_at,
        why=f"{of}: {differs}; collating them fails{at(raised.place)} with {said}"
        if not is_users_own
        else f"your collate_fn fails{at(raised.place)} for {of}: {said}",
        fix=(
            f"give {odd} what the others have: an empty tensor for what is missing, or one size for all",
            "DataLoader(…, collate_fn=…) that pads, e.g. with torch.nn.utils.rnn.pad_sequence",
        ),
        evidence=(case.counted(failed), said),
        seen=raised,
        rivals=("AF307", "AF308") if is_spoilt else (),
        decide="antifreeze run {script}" if is_spoilt else None,
    )
