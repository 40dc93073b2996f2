"""The dataset's own shared memory is larger than /dev/shm, and a worker dies when it touches the part that is not there.

What happens: memory of `multiprocessing.shared_memory` is made at once, at any size, but gets its pages from /dev/shm
when they are first written. When that is full, the write ends the process with SIGBUS, "Bus error", and torch says that
a worker exited unexpectedly.

How we know: a worker was ended by SIGBUS, and the dataset holds shared memory of its own, or /dev/shm is full.

What to do: a larger /dev/shm (`docker run --shm-size=2g`), or keep the cache on disk (`numpy.memmap`, which all workers
share as well). No loader can help: the memory is the program's own.

Looks like: AF204 shm-too-small, where torch's own batches do not fit: since torch reserves their memory, that is an
error and no bus error any more; AF312 worker-crashed, of which this is one kind.

Read on: https://docs.python.org/3/library/multiprocessing.shared_memory.html,
https://man7.org/linux/man-pages/man2/mmap.2.html (SIGBUS),
https://docs.docker.com/reference/cli/docker/container/run/#options
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, size, whose
from antifreeze.doctor.check import check
from antifreeze.doctor.deaths import deaths_in, of_worker, signal_of
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Death, Held, Loader, Machine, Outcome, Place
from antifreeze.doctor.finding import Finding, Weight

MB = 1 << 20

_CACHE = Held(path="dataset.shm", kind="shared-memory", what="SharedMemory of 93 MB", place=Place("train.py", 27))
_DEATH = Death(worker=1, pid=4243, exitcode=-7, how="SIGBUS", sample="42", place=Place("train.py", 35))
SICK = tried(
    Loader(number=0, num_workers=2, start_method="fork", held=(_CACHE,)),
    as_written(Outcome.CRASH, deaths=(_DEATH,)),
    machine=Machine(cpus=2, usable_cpus=2, shm_total_bytes=64 * MB, shm_free_bytes=0),
)
HEALTHY = tried(
    Loader(number=0, num_workers=2, start_method="fork", held=(_CACHE,)),
    as_written(),
    machine=Machine(cpus=2, usable_cpus=2, shm_total_bytes=64 * MB, shm_free_bytes=64 * MB),
)


@check("AF205", "shared-memory-overcommitted", sick=SICK, healthy=HEALTHY)
def shared_memory_overcommitted(case: LoaderCase) -> Iterator[Finding]:
    death = next((death for _, death in deaths_in(case) if signal_of(death) == "SIGBUS"), None)
    machine = case.facts.machine
    total = machine.shm_total_bytes if machine else None
    shared = [held for held in case.held if held.kind == "shared-memory"]
    is_full = machine is not None and bool(total) and (machine.shm_free_bytes or total or 0) < 0.02 * (total or 0)
    if death is None or not (shared or is_full):
        return
    room = f"/dev/shm has {size(total)}" if total else "/dev/shm has no more room"
    cache = f"{whose(shared[0])} is in /dev/shm and takes its memory there as it is written" if shared else "it is full"
    yield Finding(
        weight=Weight.CERTAIN if shared else Weight.LIKELY,
        what=f"{of_worker(death)} was ended by SIGBUS: it wrote to shared memory that has no room left",
        where=death.place or (shared[0].place if shared else None),
        why=f"{room}; {cache}, last{at(death.place)}" if death.place else f"{room}; {cache}",
        fix=(
            "docker run --shm-size=2g …",
            "keep the cache on disk, where all workers share it as well: numpy.memmap(path, dtype, 'w+', shape=…)",
        ),
        evidence=(f"pid {death.pid}: SIGBUS",),
        seen=death,
    )
