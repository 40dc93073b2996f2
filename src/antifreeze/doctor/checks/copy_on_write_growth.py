"""Reading a big Python list or dict in forked workers copies it, page by page, into each of them.

What happens: forked workers share the dataset's memory until somebody writes to it. Python writes whenever it touches
an object: its reference count stands in it. So a list of many texts, tuples or dicts, which is only read, becomes a
private copy in every worker, and memory grows from batch to batch until the machine has no more.

How we know: the dataset holds a container of very many objects, workers are forked, and their private memory grows with
the samples they read.

What to do: `antifreeze.packed(list)` keeps the objects in one buffer and reads like the list; or a numpy array, a torch
tensor, an Arrow table. `antifreeze run train.py` renews a worker that has copied much, which takes a moment.
`gc.freeze()`, which is often advised, does not help: 29 MB of growth with it, 30 MB without.

Looks like: AF207 worker-memory-grows, where the dataset collects something; AF208 dataset-copied-to-workers, with
spawn.

Read on: https://github.com/pytorch/pytorch/issues/13246,
https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading (the warning on copy-on-write)
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, grown_most, size
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Bulk, Facts, Loader, Place, WorkerMemory
from antifreeze.doctor.finding import Finding, Weight

MB = 1 << 20
# Fewer cannot hurt: at some hundred bytes each they are a few tens of megabytes for each worker.
MANY = 100_000
# A worker touches other memory, too, when it begins.
GROWTH_BYTES = 2 * MB

_ITEMS = Bulk(path="dataset.items", type="list", count=400_000, bytes=55 * MB, place=Place("train.py", 21))
_LOADER = Loader(number=0, num_workers=2, start_method="fork", bulks=(_ITEMS,))
SICK = tried(
    _LOADER, as_written(memory=(WorkerMemory(worker=0, first_bytes=20 * MB, last_bytes=50 * MB, samples=200_000),))
)
HEALTHY = Facts(
    loaders=(
        Loader(
            number=0,
            num_workers=2,
            start_method="fork",
            bulks=(Bulk(path="dataset.x", type="ndarray", count=0, bytes=900 * MB),),
        ),
    ),
    trials=SICK.trials,
)


@check("AF206", "copy-on-write-growth", sick=SICK, healthy=HEALTHY)
def copy_on_write_growth(case: LoaderCase) -> Iterator[Finding]:
    bulks = sorted((bulk for bulk in case.loader.bulks if bulk.count >= MANY), key=_bytes)
    if not bulks or not case.is_forked or not case.num_workers:
        return
    bulk = bulks[-1]
    grown = grown_most(case)
    is_seen = grown is not None and grown.last_bytes - grown.first_bytes >= GROWTH_BYTES
    if not is_seen and bulk.bytes * case.num_workers < 512 * MB:
        return
    seen = (
        f"worker {grown.worker} grew by {size(grown.last_bytes - grown.first_bytes)} in {grown.samples:,} samples"
        if grown and is_seen
        else f"{bulk.count:,} objects"
    )
    whole = bulk.bytes * case.num_workers
    yield Finding(
        weight=Weight.LIKELY if is_seen else Weight.POSSIBLE,
        what="the memory of every worker grows with the samples that it reads, although it only reads",
        where=bulk.place or case.built_at,
        why=f"{bulk.path} is a {bulk.type} of {bulk.count:,} Python objects ({size(bulk.bytes)}); touching one "
        f"writes its reference count, so each worker copies it, in the end {size(whole)} for {case.num_workers} "
        "workers",
        fix=(
            f"{_assigned(bulk)} = antifreeze.packed({_assigned(bulk)})   (reads like the {bulk.type}, is never copied)",
            "antifreeze run {script}   (renews a worker that has copied much)",
        ),
        evidence=(seen,),
        worker=grown.worker if grown and is_seen else None,
        rivals=() if is_seen else ("AF207",),
        decide=None if is_seen else "antifreeze doctor --batches 200 {script}",
    )


def _bytes(bulk: Bulk) -> int:
    return bulk.bytes


def _assigned(bulk: Bulk) -> str:
    return bulk.path.replace("dataset.", "self.", 1)
