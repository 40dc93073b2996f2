"""The dataset is changed between epochs, and persistent workers do not see it.

What happens: with `persistent_workers=True` the workers keep the copy of the dataset that they got in the first epoch.
`dataset.set_epoch(epoch)`, a new list of hard examples or another augmentation changes the original in the main
process only; samples keep coming from the old one. There is no error.

How we know: the source. In the loop over epochs a method of the dataset is called, or an attribute of it is assigned,
that changes what `__getitem__` or `__iter__` reads, and the loader has persistent workers and is not made anew.

What to do: `persistent_workers=False`; or keep what changes in memory that workers share:
`self.epoch = multiprocessing.Value("i", 0)`, then `self.epoch.value = epoch`. `antifreeze run --fix stale train.py`
sends the dataset to the workers again when it has changed.

Looks like: AF330 worker-state-lost, the other direction; AF505 fixed-worker-seed, if epochs repeat.

Read on: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader (`persistent_workers`),
https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Value
"""

from __future__ import annotations

import re

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.facts import DatasetClass, Facts, LoaderCall, LoaderLoop, Place, Source
from antifreeze.doctor.finding import Finding, Weight

_ASSIGNED = re.compile(r"\.(\w+) = ")
_CALLED = re.compile(r"\.(\w+)\(")


def _facts(persistent: str) -> Facts:
    call = LoaderCall(
        place=Place("train.py", 36), workers=2, arguments={"persistent_workers": persistent}, datasets=("Curriculum",)
    )
    loop = LoaderLoop(
        place=Place("train.py", 40),
        loader=call.place,
        epochs=Place("train.py", 37),
        dataset_calls=(Place("train.py", 38, "", "ds.set_epoch(epoch)"),),
    )
    dataset = DatasetClass(name="Curriculum", place=Place("train.py", 20), changed_by={"set_epoch": ("epoch",)})
    return Facts(source=Source(script="train.py", loaders=(call,), loops=(loop,), datasets=(dataset,)))


SICK = _facts(persistent="True")
HEALTHY = _facts(persistent="False")


@check("AF503", "stale-dataset", sick=SICK, healthy=HEALTHY)
def stale_dataset(case: LoaderCase) -> list[Finding]:
    if not case.is_persistent or case.workers == 0 or case.call is None or case.call.is_in_loop:
        return []
    calls = [place for loop in case.loops for place in loop.dataset_calls]
    return [_finding(case, place) for place in dict.fromkeys(calls)]


def _finding(case: LoaderCase, place: Place) -> Finding:
    names = ", ".join(f"self.{name}" for name in _attributes(case, place.text))
    return Finding(
        weight=Weight.LIKELY if case.workers else Weight.POSSIBLE,
        what="the workers do not see that the dataset has changed, and go on with the old one",
        where=place,
        why=f"`{place.text}` changes {names}, which samples read, in the main process; the loader at {case.built_at} has "
        "persistent workers, with copies of the dataset from its first epoch",
        fix=(
            "DataLoader(…, persistent_workers=False)",
            "antifreeze run --fix stale {script}",
            f"{names.partition(',')[0]} = multiprocessing.Value(…)  # seen by all workers",
        ),
        evidence=("read in the source",),
    )


def _attributes(case: LoaderCase, text: str) -> tuple[str, ...]:
    """What a call, or an assignment, changes."""
    called = _CALLED.findall(text)
    for each in case.datasets:
        for name in reversed(called):
            if name in each.changed_by:
                return each.changed_by[name]
    assigned = _ASSIGNED.search(text)
    return (assigned[1],) if assigned else ("?",)
