"""The first epoch works, and the next one fails or is empty: something of the first has stayed behind.

What happens: a dataset, a sampler or a file is not what it was before the first epoch. A generator that was made once is
used up, and the second epoch is over at once, without an error; a cache that the first epoch filled is read the wrong
way; a counter goes on where it should begin anew. Persistent workers keep all that happens to their copy of the
dataset; other workers start anew, from what the training process has.

How we know: in the trial a second epoch was begun after the first. It raised an exception in the user's code, for a
sample that loads by itself, or it had no batch at all.

What to do: make in `__iter__`, and not in `__init__`, what one epoch uses up; begin every epoch from values that do not
depend on the one before. `persistent_workers=False` gives each epoch new workers, if the workers' copy is at fault.

Looks like: AF322 sample-failed-once, where a read fails now and then in any epoch; AF503 stale-dataset, where the second
epoch works but is not the one that was wanted; AF327 sampler-fails, which fails in the first epoch, too.

Read on: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset,
https://docs.python.org/3/glossary.html#term-iterator
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from antifreeze.doctor.cases import LoaderCase, at, comes_again, failed_at, first_line, is_users
from antifreeze.doctor.check import check
from antifreeze.doctor.checks.sample_failed_once import PASSING
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, Outcome, Place, Raised, Trial
from antifreeze.doctor.finding import Finding, Weight

STAGES = ("fetch", "collate", "sampler")

_LOADER = Loader(
    number=0,
    num_workers=2,
    start_method="fork",
    persistent_workers=True,
    is_iterable=True,
    dataset="Lines",
    dataset_at=Place("train.py", 9),
)
_TRIAL = as_written(batches=20, epochs=2)
SICK = tried(_LOADER, replace(_TRIAL, outcome=Outcome.SHORT, is_whole_epoch=True))
HEALTHY = tried(_LOADER, _TRIAL)


@check("AF333", "second-epoch-fails", sick=SICK, healthy=HEALTHY)
def second_epoch_fails(case: LoaderCase) -> list[Finding]:
    return [finding for trial in case.trials if trial.epochs > 1 for finding in _examine(case, trial)]


def _examine(case: LoaderCase, trial: Trial) -> Iterator[Finding]:
    if trial.outcome is Outcome.SHORT:
        yield _empty(case)
        return
    raised = trial.raised
    if trial.outcome is not Outcome.ERROR or raised is None or not _is_of_the_epoch(case, trial, raised):
        return
    why = f"{raised.type}{at(raised.place)}: {first_line(raised.message)}; {_left_behind(case)}"
    finding = _finding(case, "the second epoch fails, and the first did not", raised.place, why, seen=raised.type)
    yield replace(finding, worker=raised.worker, sample=raised.sample)


def _is_of_the_epoch(case: LoaderCase, trial: Trial, raised: Raised) -> bool:
    """Not of a sample that fails whenever it is loaded, nor of one that failed by chance."""
    if raised.stage not in STAGES or not is_users(raised) or PASSING.search(raised.type):
        return False
    return trial.is_whole_epoch or comes_again(case, raised.sample, failed_at) is False


def _empty(case: LoaderCase) -> Finding:
    """A stream, or the sampler of a map-style dataset, that was used up."""
    loader = case.loader
    name = loader.dataset or "the stream" if loader.is_iterable else loader.sampler or "the sampler"
    where = (loader.dataset_at if loader.is_iterable else None) or case.built_at
    why = f"{name} has nothing left to give once it was read to its end; {_left_behind(case)}"
    return _finding(case, "the second epoch is empty, without an error", where, why, seen="it was over at once")


def _finding(case: LoaderCase, what: str, where: Place | None, why: str, *, seen: str) -> Finding:
    is_repeated = case.loop is None or case.loop.epochs is not None
    return Finding(
        weight=Weight.LIKELY if is_repeated else Weight.POSSIBLE,
        what=what,
        where=where,
        why=why,
        fix=(
            "begin every epoch anew: make in __iter__, and not in __init__, what it uses up",
            *(("DataLoader(…, persistent_workers=False)",) if _keeps_workers(case) else ()),
        ),
        evidence=(f"a second epoch was begun: {seen}", *(() if is_repeated else ("no loop over epochs is seen",))),
        rivals=() if is_repeated else ("AF322",),
    )


def _left_behind(case: LoaderCase) -> str:
    if _keeps_workers(case):
        return "persistent workers keep what the first epoch did to their dataset"
    return "the second epoch finds what the first one left behind in the dataset, the sampler or on disk"


def _keeps_workers(case: LoaderCase) -> bool:
    return case.loader.persistent_workers
