"""`StopIteration` escapes from `__getitem__`, and the epoch ends early without an error.

What happens: `next(iterator)` in the dataset finds its iterator empty and raises StopIteration. Out of the loader that
means "the epoch is over": the rest of the data is dropped, in silence.

How we know: in a trial the epoch ended before all samples had come, and StopIteration was raised in the dataset.

What to do: `next(it, default)`, or `itertools.cycle`, or catch it and raise another error. `antifreeze run train.py`
does what torch does here; nothing but the dataset can know what was meant.

Looks like: an epoch that is short because of `drop_last` or a sampler of its own length, which is as it should be.

Read on: https://docs.python.org/3/library/exceptions.html#StopIteration,
https://docs.python.org/3/library/functions.html#next
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, sights_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, Outcome, Place, Raised, Sight
from antifreeze.doctor.finding import Finding, Weight

_LOADER = Loader(number=0, num_workers=2, samples=40)
_RAISED = Raised(type="StopIteration", message="", stage="fetch", place=Place("train.py", 30), sample="16")
SICK = tried(_LOADER, as_written(Outcome.SHORT, samples=16, raised=_RAISED))
HEALTHY = tried(_LOADER, as_written(samples=40))


@check("AF325", "stop-iteration-in-getitem", sick=SICK, healthy=HEALTHY)
def stop_iteration_in_getitem(case: LoaderCase) -> Iterator[Finding]:
    raising = [trial for trial in case.trials if trial.raised and trial.raised.type == "StopIteration"]
    short = [trial for trial in case.trials if trial.outcome is Outcome.SHORT]
    sight = _next(case)
    if not raising and not (short and sight):
        return
    trial = (raising or short)[0]
    raised = trial.raised if raising else None
    place = (raised.place if raised else None) or (sight.place if sight else None)
    of = f" of {case.loader.samples:,}" if case.loader.samples else ""
    yield Finding(
        weight=Weight.CERTAIN if raising and short else Weight.LIKELY if raising else Weight.POSSIBLE,
        what=f"the epoch ends after {trial.samples:,}{of} samples, without an error",
        where=place,
        why="StopIteration is "
        f"raised{at(place)}{f' for sample {raised.sample}' if raised and raised.sample else ''}; out of a loader "
        "it means that the epoch is over",
        fix=("next(it, default), or itertools.cycle(…)", "except StopIteration: raise IndexError(index)"),
        evidence=(case.counted(raising or short),),
        seen=raised,
        rivals=() if raising else ("AF327",),
        decide=None if raising else "python -c 'for i in range(len(dataset)): dataset[i]'",
    )


def _next(case: LoaderCase) -> Sight | None:
    return next(iter(sights_in(case.source.datasets, "next")), None)
