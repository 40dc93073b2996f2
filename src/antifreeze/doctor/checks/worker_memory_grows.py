"""A worker needs more and more memory: something in it is collected and never let go.

What happens: a cache without a limit, a list that every sample is appended to, a native library that leaks. Each worker
has its own, so it costs `num_workers` times, and after hours the kernel kills a worker (AF311) or the job.

How we know: the private memory of a worker grew much during a trial, and no big Python container explains it.

What to do: bound the cache (`functools.lru_cache(maxsize=1000)`), close what is opened, or end the leak by renewing the
workers: without `persistent_workers` they are new in every epoch.

Looks like: AF206 copy-on-write-growth, where a list that is only read is copied; a cache that fills up once and then
stays is no leak, and a short trial cannot tell them apart.

Read on: https://docs.python.org/3/library/functools.html#functools.lru_cache,
https://docs.python.org/3/library/tracemalloc.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, grown_most, sights_in, size
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, Machine, Sight, WorkerMemory
from antifreeze.doctor.finding import Finding, Weight

MB = 1 << 20
# What warming up takes: modules that are imported late, buffers, allocators.
GROWTH_BYTES = 64 * MB
SAMPLES = 50

_LOADER = Loader(number=0, num_workers=4, start_method="fork", samples=1_000_000, dataset="train.Images")
SICK = tried(
    _LOADER,
    as_written(workers=4, memory=(WorkerMemory(worker=2, first_bytes=80 * MB, last_bytes=400 * MB, samples=800),)),
    machine=Machine(cpus=8, usable_cpus=8, memory_available_bytes=16_000 * MB),
)
HEALTHY = tried(
    _LOADER,
    as_written(workers=4, memory=(WorkerMemory(worker=2, first_bytes=80 * MB, last_bytes=90 * MB, samples=800),)),
)


@check("AF207", "worker-memory-grows", sick=SICK, healthy=HEALTHY)
def worker_memory_grows(case: LoaderCase) -> Iterator[Finding]:
    memory = grown_most(case)
    if memory is None or not case.is_found or memory.samples < SAMPLES:
        return
    grown = memory.last_bytes - memory.first_bytes
    if grown < max(GROWTH_BYTES, 0.25 * memory.first_bytes):
        return
    available = case.facts.machine.memory_available_bytes if case.facts.machine else None
    whole = grown / memory.samples * (case.loader.samples or 0)
    ends = f"; over an epoch that would be {size(whole)}, and {size(available)} are free" if available and whole else ""
    kept = _kept(case)
    name = case.loader.dataset or "the dataset"
    what = f"what {name} adds to {kept.what} at {kept.place}" if kept else f"something that {name} collects"
    yield Finding(
        weight=Weight.LIKELY if kept else Weight.POSSIBLE,
        what=f"the memory of the workers grows: worker {memory.worker} by {size(grown)} in {memory.samples:,} samples",
        where=kept.place if kept else case.loader.dataset_at or case.built_at,
        why=f"{what} in its worker is never let go{ends}",
        fix=(
            "bound what is cached per worker: functools.lru_cache(maxsize=1000)",
            "leave persistent_workers out: workers are new in every epoch",
        ),
        evidence=(f"private memory of worker {memory.worker}: {size(memory.first_bytes)} → {size(memory.last_bytes)}",),
        worker=memory.worker,
        rivals=() if kept else ("AF206",),
        decide=None if kept else "antifreeze doctor --batches 200 {script}",
    )


def _kept(case: LoaderCase) -> Sight | None:
    """The list of the dataset's own that every sample makes longer; a cache by index ends with the dataset."""
    adds = re.compile(r"\.(append|extend)\(")
    return next((each for each in sights_in(case.datasets, "changes-self") if adds.search(each.place.text)), None)
