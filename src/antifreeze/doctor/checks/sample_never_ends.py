"""A sample computes and does not come to an end.

What happens: a loop in the dataset never meets its condition (rejection sampling that nothing satisfies, a search that
goes round), or the work for one sample is vastly more than for others. One worker uses a whole processor, the others
wait, and the training with them. Nothing in torch's loader limits the time that a sample may take.

How we know: in a trial, or in the program as it stands, a worker computes at one sample for far longer than the others
took.

What to do: bound the loop: `for attempt in range(100):` … `else: raise ValueError(f"no crop for sample {index}")`, and
look at the sample that is named. `antifreeze run --on-error skip train.py` leaves such a sample out once it raises.

Looks like: AF103 sample-hangs, where the worker waits and uses no processor; AF406 data-bound, where all samples are
slow.

Read on: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader (`timeout`)
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, comes_again, sights_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import FORKED, as_written, stuck_worker, tried
from antifreeze.doctor.facts import Outcome, Place, Sight, Stuck, Trial
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.waits import Wait, never_returned, state_of, stuck_in, wait_of

LONG_S = 10.0

_LINE = Place("train.py", 34, "__getitem__", "crop = self.masks[i][y:y + 4, x:x + 4]")
SICK = tried(
    FORKED,
    as_written(
        Outcome.HANG,
        stuck=(stuck_worker(_LINE, worker=1, sample="7", typical_s=0.001, waits_in=None, state="R", cpu_share=1.0),),
    ),
)
HEALTHY = tried(FORKED, as_written(Outcome.SLOW))


@check("AF108", "sample-never-ends", sick=SICK, healthy=HEALTHY)
def sample_never_ends(case: LoaderCase) -> Iterator[Finding]:
    seen = list(stuck_in(case, Wait.RUNNING))
    if not seen:
        return
    trial, stuck = seen[0]
    loop = _loop(case, stuck)
    weight = _weight(case, trial, stuck, has_loop=loop is not None)
    around = f"; the loop{at(loop.place)} has no end of its own" if loop else ""
    yield Finding(
        weight=weight,
        what=never_returned(stuck, case),
        where=loop.place if loop else stuck.place,
        why=f"it has been computing{at(stuck.place)} all the time and does not come to an end{around}",
        fix=(
            "bound the number of attempts: for attempt in range(100): … else: raise ValueError(index)",
            "antifreeze run --on-error skip {script}   (then leaves out what raises)",
        ),
        evidence=(case.counted({each.workers: each for each, _ in seen}.values()), state_of(stuck)),
        seen=stuck,
        rivals=("AF406",) if weight is Weight.POSSIBLE else (),
        decide=f"antifreeze dump {stuck.pid}" if weight is Weight.POSSIBLE else None,
    )


def _weight(case: LoaderCase, trial: Trial, stuck: Stuck, *, has_loop: bool) -> Weight:
    if case.is_live:
        workers = [each for each in trial.stuck if each.role == "worker"]
        # If all compute, loading may just be slow; if one does while others have nothing to do, it holds them up.
        others_idle = any(each.stage == "idle" for each in workers)
        return Weight.LIKELY if has_loop or (others_idle and stuck.seconds >= LONG_S) else Weight.POSSIBLE
    again = comes_again(
        case, stuck.sample, lambda each: [one.sample for one in each.stuck if wait_of(one, case) is Wait.RUNNING]
    )
    return Weight.CERTAIN if again else Weight.LIKELY


def _loop(case: LoaderCase, stuck: Stuck) -> Sight | None:
    """The endless loop in the source that the stuck line belongs to."""
    if stuck.place is None:
        return None
    loops = sights_in(case.source.datasets, "endless-loop")
    lines = {(frame.file, frame.function) for frame in (stuck.place, *stuck.frames)}
    return next((loop for loop in loops if (loop.place.file, loop.place.function) in lines), None)
