"""A stream gives other items when it is read again, so a lost worker cannot be replaced exactly.

What happens: when a worker of an `IterableDataset` dies, our engine starts another, which reads the stream again and
leaves out what was delivered. That is right only if the stream repeats itself. If it does not (it shuffles without a
seed, it reads a queue or a live source), some items come twice and others not at all.

How we know: the engine compares the first items of the second reading with those of the first, in a trial on it or in
your own run.

What to do: seed the stream's shuffling from `get_worker_info().seed`, which is the same for the replacement; or
`antifreeze run --no-replay train.py`, which makes such a death an error.

Looks like: AF502 unsharded-stream, where items come twice without any death; AF501 copied-generator.

Read on: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset,
https://docs.pytorch.org/docs/stable/data.html#randomness-in-multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import tried
from antifreeze.doctor.facts import Loader, Outcome, Place, Trial
from antifreeze.doctor.finding import Finding, Weight

# The engine's own words, in the error output of a trial on it.
TOLD = "AF504 unrepeatable-stream"

_LOADER = Loader(number=0, num_workers=2, is_iterable=True, dataset_at=Place("train.py", 19))
SICK = tried(
    _LOADER,
    Trial(
        loader=0,
        engine="antifreeze",
        workers=2,
        outcome=Outcome.OK,
        stderr=f"{TOLD}: a worker died, and its stream gave other items when it was read again",
    ),
)
HEALTHY = tried(_LOADER, Trial(loader=0, engine="antifreeze", workers=2, outcome=Outcome.OK))


@check("AF504", "unrepeatable-stream", sick=SICK, healthy=HEALTHY)
def unrepeatable_stream(case: LoaderCase) -> Iterator[Finding]:
    if any(TOLD in trial.stderr for trial in case.trials if trial.engine == "antifreeze"):
        yield Finding(
            weight=Weight.CERTAIN,
            what="a worker died, and its stream gave other items when it was read again: some came twice, others not "
            "at all",
            where=case.loader.dataset_at or case.built_at,
            why=f"{case.loader.dataset or 'the dataset'} does not repeat itself: it "
            "shuffles without a seed, or reads a live source",
            fix=(
                "seed it from torch.utils.data.get_worker_info().seed",
                "antifreeze run --no-replay {script}   (such a death becomes an error)",
            ),
            evidence=("our engine compared the items of both readings",),
        )
