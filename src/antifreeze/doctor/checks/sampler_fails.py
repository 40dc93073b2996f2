"""The sampler raises.

What happens: a sampler runs in the training process, some batches ahead of the workers. Its error ends the epoch before
the batches that were on their way arrive, so it seems to come from nowhere.

How we know: the exception came in a trial, from the sampler's own code.

What to do: mend the line that is named. Run over the sampler alone to check: `list(sampler)`.

Looks like: AF324 index-out-of-range, where the sampler yields what the dataset does not have; AF321 sample-fails.

Read on: https://docs.pytorch.org/docs/stable/data.html#data-loading-order-and-sampler
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, first_line
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, Outcome, Place, Raised
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.torch_side.frames import NEXT_INDEX

_LOADER = Loader(number=0, num_workers=2, sampler="CurriculumSampler", built_at=Place("train.py", 43))
_RAISED = Raised(type="IndexError", message="list index out of range", stage="sampler", place=Place("train.py", 37))
SICK = tried(_LOADER, as_written(Outcome.ERROR, raised=_RAISED))
HEALTHY = tried(_LOADER, as_written())


@check("AF327", "sampler-fails", sick=SICK, healthy=HEALTHY)
def sampler_fails(case: LoaderCase) -> Iterator[Finding]:
    failed = [trial for trial in case.trials if trial.raised and _is_of_sampler(trial.raised)]
    raised = failed[0].raised if failed else None
    if raised is None:
        return
    name = case.loader.sampler or "the sampler"
    yield Finding(
        weight=Weight.CERTAIN,
        what=f"{name} fails in the middle of the epoch, and batches that were on their way are lost",
        where=raised.place or case.built_at,
        why=f"{raised.type}{at(raised.place)}: {first_line(raised.message)}; a sampler runs in the training "
        "process, ahead of the workers",
        fix=(f"mend the line{at(raised.place)}; list(sampler) runs it alone",),
        evidence=(case.counted(failed),),
    )


def _is_of_sampler(raised: Raised) -> bool:
    """Some batches are planned before the workers have started."""
    begins = raised.stage == "start" and any(frame.function == NEXT_INDEX for frame in raised.frames)
    return raised.stage == "sampler" or begins
