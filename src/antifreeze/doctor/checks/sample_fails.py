"""A sample fails every time it is loaded.

What happens: the dataset raises for one index: a damaged image, a missing file, a label that is not in the table. torch
raises the error again in the training process and the epoch ends; its message has the worker's number, but not the
sample's.

How we know: the exception was caught in a trial together with the index, and it came again when the sample was loaded
again.

What to do: repair or remove the sample that is named. `antifreeze run --on-error skip train.py` leaves such samples out
and lists them; `--on-error replace` takes others instead.

Looks like: AF322 sample-failed-once, where loading again works; AF307 shared-file-offset, AF308 shared-connection and
AF309 forked-database, where a sample fails in workers only; AF324 index-out-of-range, where the index is to blame.

Read on: https://docs.pytorch.org/docs/stable/data.html#map-style-datasets
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import CAME, LoaderCase, at, comes_again, failed_at, first_line, raised_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import FORKED, as_written, tried, with_workers
from antifreeze.doctor.facts import Outcome, Place, Raised
from antifreeze.doctor.finding import Finding, Weight

_RAISED = Raised(
    type="PIL.UnidentifiedImageError",
    message="cannot identify image file '11.png'",
    stage="fetch",
    place=Place("train.py", 33),
    sample="11",
    worker=0,
)
SICK = tried(FORKED, as_written(Outcome.ERROR, raised=_RAISED), with_workers(0, Outcome.ERROR, raised=_RAISED))
HEALTHY = tried(FORKED, as_written(Outcome.ERROR, raised=_RAISED), with_workers(0, is_whole_epoch=True))


@check("AF321", "sample-fails", sick=SICK, healthy=HEALTHY)
def sample_fails(case: LoaderCase) -> Iterator[Finding]:
    failed = [trial for trial in raised_in(case, "fetch") if not trial.deaths]
    raised = failed[0].raised if failed else None
    if raised is None or raised.type == "StopIteration":
        return
    again = comes_again(case, raised.sample, failed_at)
    everywhere = all(trial.raised for trial in case.trials)
    if again is False:
        return
    sample = f"sample {raised.sample}" if raised.sample is not None else "a sample"
    without = [trial for trial in failed if not trial.workers]
    in_workers = " in workers" if not without and any(t.outcome in CAME and not t.workers for t in case.trials) else ""
    yield Finding(
        weight=Weight.CERTAIN if again or (raised.sample is None and everywhere) else Weight.LIKELY,
        what=f"{sample} cannot be loaded{in_workers}, and the epoch ends there",
        where=raised.place,
        why=f"{raised.type}{at(raised.place)}: {first_line(raised.message)}",
        fix=_fix(raised, is_only_in_workers=bool(in_workers)),
        evidence=(case.counted(failed), *(("it fails without workers, too",) if without else ())),
        seen=raised,
    )


def _fix(raised: Raised, *, is_only_in_workers: bool) -> tuple[str, ...]:
    name = f"sample {raised.sample}" if raised.sample is not None else "the sample"
    own = f"repair or remove {name}" if not is_only_in_workers else f"load {name} alone, with num_workers=1"
    return (own, "antifreeze run --on-error skip {script}   (leaves such samples out, and lists them)")
