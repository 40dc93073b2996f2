"""What samples write into the dataset is read in the main process, where it never arrives.

What happens: each worker has its own copy of the dataset. A list of bad files, a counter or a cache that `__getitem__`
fills is filled there, and is gone with the worker; in the main process it stays as it was. With `num_workers=0` all
works.

How we know: the source. `__getitem__`, or a method that it calls, changes an attribute of the dataset, and the same
object's attribute is read outside of its class, during or after the loop. Caches that nobody else reads are no
finding.

What to do: return it with the sample, as one more value. Or share it: `multiprocessing.Value` for a number,
`multiprocessing.Manager().list()` for a list, a tensor after `share_memory_()` for an array.

Looks like: AF503 stale-dataset, the other direction: changes in the main process that do not reach the workers.

Read on: https://docs.pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading,
https://docs.python.org/3/library/multiprocessing.html#sharing-state-between-processes
"""

from __future__ import annotations

from antifreeze.doctor.cases import LoaderCase, loader_cases, sights_in
from antifreeze.doctor.check import program_check
from antifreeze.doctor.facts import DatasetClass, Facts, LoaderCall, Place, Sight, Source
from antifreeze.doctor.finding import Finding, Weight

_CALL = LoaderCall(place=Place("train.py", 36), workers=2, datasets=("Files",))
_CHANGE = Sight(kind="changes-self", what="self.bad", place=Place("train.py", 28), also=Place("train.py", 38))
SICK = Facts(
    source=Source(
        script="train.py",
        loaders=(_CALL,),
        datasets=(DatasetClass(name="Files", place=Place("train.py", 19), sights=(_CHANGE,)),),
    )
)
HEALTHY = Facts(
    source=Source(
        script="train.py",
        loaders=(_CALL,),
        datasets=(
            DatasetClass(
                name="Files",
                place=Place("train.py", 19),
                sights=(Sight(kind="changes-self", what="self.cache", place=Place("train.py", 28)),),
            ),
        ),
    )
)


@program_check("AF330", "worker-state-lost", sick=SICK, healthy=HEALTHY)
def worker_state_lost(facts: Facts) -> list[Finding]:
    found: dict[Place, Finding] = {}
    for case in loader_cases(facts):
        for sight in sights_in(case.datasets, "changes-self"):
            if sight.also is not None and case.workers != 0:
                found.setdefault(sight.place, _finding(case, sight, read_at=sight.also))
    return list(found.values())


def _finding(case: LoaderCase, sight: Sight, *, read_at: Place) -> Finding:
    workers = f"{case.workers} workers have" if case.workers else "each worker has"
    return Finding(
        weight=Weight.LIKELY if case.workers else Weight.POSSIBLE,
        what="what the workers note in the dataset never reaches the main process",
        where=sight.place,
        why=f"{sight.what} is changed here, in the copy of the dataset that {workers}; {read_at} reads the original",
        fix=(
            "return it with the sample, and gather it in the training loop",
            f"{sight.what} = multiprocessing.Manager().list()  # or .dict(): shared by all workers",
        ),
        evidence=(f"read in the source: changed at {sight.place}, read at {read_at}",),
        loader=case.number,
    )
