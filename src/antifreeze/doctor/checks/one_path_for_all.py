"""All workers write to the same file.

What happens: a file that a sample writes, under a name that depends neither on the sample nor on the worker, is
written by several processes at once. They empty it under each other's hands: half a file, that of another sample, or
an error that comes and goes. With `num_workers=0`, or 1, all is well.

How we know: the source. A path made only of constants and of attributes of the dataset that no sample changes is
opened for writing, or saved to, in the code that runs per sample; no lock is around it, and it is not a file that is
made once.

What to do: put the index or the worker into the name, `f"{self.root}/{index}.npy"`, `f"scratch-{os.getpid()}"`; or let
`tempfile.NamedTemporaryFile` choose. To replace a file for all to read, write another one and `os.replace` it.

Looks like: AF307 shared-file-offset, where one open file is read by all; AF321 sample-fails, as which it is often
seen.

Read on: https://docs.python.org/3/library/tempfile.html, https://docs.python.org/3/library/os.html#os.replace
"""

from __future__ import annotations

from antifreeze.doctor.cases import LoaderCase, loader_cases, sights_in
from antifreeze.doctor.check import program_check
from antifreeze.doctor.facts import DatasetClass, Facts, LoaderCall, Place, Sight, Source
from antifreeze.doctor.finding import Finding, Weight

_DATASET = DatasetClass(
    name="Decoded",
    place=Place("data.py", 10),
    sights=(Sight(kind="writes-fixed-path", what='"scratch.wav"', place=Place("data.py", 25)),),
)


def _facts(workers: int) -> Facts:
    call = LoaderCall(place=Place("train.py", 40), workers=workers, datasets=("Decoded",))
    return Facts(source=Source(script="train.py", datasets=(_DATASET,), loaders=(call,)))


SICK = _facts(workers=4)
HEALTHY = _facts(workers=1)


@program_check("AF332", "one-path-for-all", sick=SICK, healthy=HEALTHY)
def one_path_for_all(facts: Facts) -> list[Finding]:
    found: dict[Place, Finding] = {}
    for case in loader_cases(facts):
        for sight in sights_in(case.datasets, "writes-fixed-path"):
            if case.workers not in (0, 1):
                found.setdefault(sight.place, _finding(case, sight))
    return list(found.values())


def _finding(case: LoaderCase, sight: Sight) -> Finding:
    workers = f"{case.workers} workers" if case.workers else "all workers"
    return Finding(
        weight=Weight.LIKELY if case.workers else Weight.POSSIBLE,
        what="workers overwrite each other's file",
        where=sight.place,
        why=f"{workers} write to {sight.what} for every sample: the path depends neither on the sample nor on the worker",
        fix=('path = f"{os.getpid()}-{index}"  # a name of its own', "tempfile.NamedTemporaryFile()"),
        evidence=("read in the source",),
        loader=case.number,
    )
