"""Some samples hold NaN or infinite numbers.

What happens: one such value in a batch makes the loss NaN, and from then on all weights. It is noticed much later, and
looks like a problem of the model or the learning rate.

How we know: the samples of a trial were looked at.

What to do: look at the samples that are named, and repair them or leave them out; divide by `std + 1e-8` where a
standard deviation may be zero. If NaN means "missing" in your data, all is well: `# antifreeze: ignore[AF331]`.

Looks like: a diverging training, where samples are finite and the loss is not.

Read on: https://docs.pytorch.org/docs/stable/generated/torch.isfinite.html
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import tried, with_workers
from antifreeze.doctor.facts import Loader, Place
from antifreeze.doctor.finding import Finding, Weight

# If many samples have them, they are part of the data: missing values, masks.
FEW = 0.1

_LOADER = Loader(number=0, num_workers=2, dataset_at=Place("train.py", 19))
_TRIAL = with_workers(2, samples=400)
SICK = tried(_LOADER, with_workers(2, samples=400, non_finite=("17", "230")))
HEALTHY = tried(_LOADER, _TRIAL)


@check("AF331", "non-finite-sample", sick=SICK, healthy=HEALTHY)
def non_finite_sample(case: LoaderCase) -> Iterator[Finding]:
    trial = max(case.trials, key=lambda each: len(each.non_finite), default=None)
    if trial is None or not trial.non_finite:
        return
    bad = trial.non_finite
    is_few = len(bad) <= FEW * trial.samples
    yield Finding(
        weight=Weight.LIKELY if is_few else Weight.POSSIBLE,
        what=f"sample{'s' * (len(bad) > 1)} {', '.join(bad[:5])} hold{'s' * (len(bad) == 1)} NaN or infinite "
        "numbers, which can spoil the whole training",
        where=case.loader.dataset_at,
        why=f"{len(bad):,} of {trial.samples:,} samples of {case.loader.dataset or 'the dataset'} are not finite",
        fix=(
            f"look at sample {bad[0]}: torch.isfinite(x).all()",
            "# antifreeze: ignore[AF331]   (if NaN means 'missing' in your data)",
        ),
        evidence=(f"{len(bad):,} of {trial.samples:,} samples looked at",),
        sample=bad[0],
        rivals=() if is_few else ("AF307",),
        decide=None if is_few else f"python -c 'print(dataset[{bad[0]}])'",
    )
