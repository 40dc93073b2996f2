"""One sample ends every worker that loads it.

What happens: a damaged file makes a native decoder crash, or a huge one is too much for the memory, each time. Starting
again does not help: training dies at the same place, after hours if the order is shuffled, and torch does not say at
which sample.

How we know: several processes ended at the same sample.

What to do: look at the sample that is named, and remove or repair it. `antifreeze run --on-error skip train.py` leaves
it out by itself once it has ended two workers, and says so.

Looks like: AF312 worker-crashed and AF311 worker-killed, where it happened once; AF321 sample-fails, where the sample
raises.

Read on: https://docs.python.org/3/library/faulthandler.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at
from antifreeze.doctor.check import check
from antifreeze.doctor.deaths import deaths_in, end_of, is_exit
from antifreeze.doctor.examples import FORKED, as_written, tried, with_workers
from antifreeze.doctor.facts import Death, Outcome, Place
from antifreeze.doctor.finding import Finding, Weight

_DEATH = Death(worker=1, pid=4243, exitcode=-11, how="SIGSEGV", sample="13", place=Place("train.py", 24))
_TRIAL = as_written(Outcome.CRASH, deaths=(_DEATH,))
SICK = tried(FORKED, _TRIAL, with_workers(1, Outcome.CRASH, deaths=(_DEATH,)))
HEALTHY = tried(FORKED, _TRIAL, with_workers(1, is_whole_epoch=True))


@check("AF313", "poison-sample", sick=SICK, healthy=HEALTHY)
def poison_sample(case: LoaderCase) -> Iterator[Finding]:
    times = Counter(death.sample for _, death in deaths_in(case))
    again = [death for _, death in deaths_in(case) if death.sample is not None and times[death.sample] > 1]
    if not again:
        return
    death = next((each for each in again if each.place), again[0])
    yield Finding(
        weight=Weight.CERTAIN,
        what=f"sample {death.sample} ends every worker that loads it",
        where=death.place,
        why=f"who loads it {'ends with' if is_exit(death) else 'is'} {end_of(death)}{at(death.place)}: the sample, "
        "or the code that reads it, is to blame, and not the loader",
        fix=(
            f"remove or repair sample {death.sample}",
            "antifreeze run --on-error skip {script}   (leaves it out, and says so)",
        ),
        evidence=(f"reproduced: {times[death.sample]} processes ended at it", end_of(death)),
        seen=death,
    )
