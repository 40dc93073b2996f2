"""The sampler asks for a sample that does not exist.

What happens: a sampler, or a batch sampler, of your own yields an index past the end of the dataset (it pads the last
batch, or counts another list). The error appears in a worker, in `__getitem__`, far from the sampler, and looks like
damaged data.

How we know: the sample that failed has an index that is not below `len(dataset)`.

What to do: clip or wrap the indices in the sampler: `range(k, min(k + n, len(dataset)))`, `index % len(dataset)`.

Looks like: AF321 sample-fails, where the index is right and the sample is not; AF327 sampler-fails, where the sampler
itself raises.

Read on: https://docs.pytorch.org/docs/stable/data.html#data-loading-order-and-sampler
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, first_line, raised_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Facts, Loader, Outcome, Place, Raised, Trial
from antifreeze.doctor.finding import Finding, Weight

# As Python writes it: `22`, `np.int64(22)`, `tensor(22)`.
_INDEX = re.compile(r"(-?\d{1,18})|(?:np\.u?int\d+|tensor)\((-?\d{1,18})\)", re.ASCII)

_LOADER = Loader(number=0, num_workers=2, samples=22, sampler="BucketBatches", built_at=Place("train.py", 38))
_RAISED = Raised(
    type="IndexError",
    message="list index out of range",
    stage="fetch",
    place=Place("train.py", 27),
    sample="22",
)
SICK = tried(_LOADER, as_written(Outcome.ERROR, raised=_RAISED))
HEALTHY = Facts(
    loaders=(Loader(number=0, num_workers=2, samples=23, built_at=Place("train.py", 38)),), trials=SICK.trials
)


@check("AF324", "index-out-of-range", sick=SICK, healthy=HEALTHY)
def index_out_of_range(case: LoaderCase) -> Iterator[Finding]:
    length = case.loader.samples
    failed = [trial for trial in raised_in(case, "fetch") if _is_outside(trial, length)]
    raised = failed[0].raised if failed else None
    if raised is None or not case.is_found:
        return
    by = case.loader.sampler or "the sampler"
    yield Finding(
        weight=Weight.CERTAIN,
        what=f"the loader asks for sample {raised.sample}, and the dataset has {length:,}",
        where=case.built_at,
        why=f"{by} of the loader{at(case.built_at)} yields index {raised.sample}; the last one is {(length or 0) - 1} "
        f"({raised.type}{at(raised.place)}: {first_line(raised.message)})",
        fix=("clip the indices in the sampler: range(k, min(k + n, len(dataset)))",),
        evidence=(case.counted(failed), f"index {raised.sample}, len(dataset) = {length}"),
        seen=raised,
    )


def _is_outside(trial: Trial, length: int | None) -> bool:
    sample = trial.raised.sample if trial.raised else None
    index = _INDEX.fullmatch(sample) if sample is not None else None
    if length is None or index is None:
        return False
    return not -length <= int(index[1] or index[2]) < length
