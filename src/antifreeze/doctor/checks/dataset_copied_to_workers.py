"""With spawn or forkserver, every worker gets its own copy of a big dataset.

What happens: such workers share nothing with the training process. The dataset is pickled and sent to each of them, one
after the other, in every epoch unless `persistent_workers=True`: gigabytes are copied `num_workers` times, and the
first batch takes as long as that. (Torch tensors are an exception: they travel through shared memory.)

How we know: the start method is not fork, and the dataset holds arrays or containers of hundreds of megabytes.

What to do: `antifreeze run train.py`: the dataset crosses once, and big arrays are shared by all workers. With torch's
loader: `numpy.memmap` of a file that each worker opens; `torch.from_numpy(x).share_memory_()`;
`persistent_workers=True`; or `multiprocessing_context="fork"` where nothing stands against it.

Looks like: AF206 copy-on-write-growth, with fork; AF401 workers-restarted, where starting itself takes the time.

Read on: https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods,
https://docs.pytorch.org/docs/stable/data.html#platform-specific-behaviors
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import IMPORTING, LoaderCase, size
from antifreeze.doctor.check import check
from antifreeze.doctor.facts import Bulk, Facts, Loader, Machine, Place
from antifreeze.doctor.finding import Finding, Weight

MB = 1 << 20
# Pickling and copying takes about a second from here on.
BIG_BYTES = 512 * MB

_ARRAY = Bulk(path="dataset.x", type="numpy.ndarray", count=0, bytes=4096 * MB, place=Place("train.py", 21))
_MACHINE = Machine(cpus=8, usable_cpus=8, memory_available_bytes=20_000 * MB)
SICK = Facts(machine=_MACHINE, loaders=(Loader(number=0, num_workers=4, start_method="spawn", bulks=(_ARRAY,)),))
HEALTHY = Facts(machine=_MACHINE, loaders=(Loader(number=0, num_workers=4, start_method="fork", bulks=(_ARRAY,)),))


@check("AF208", "dataset-copied-to-workers", sick=SICK, healthy=HEALTHY)
def dataset_copied_to_workers(case: LoaderCase) -> Iterator[Finding]:
    if case.start_method not in IMPORTING or not case.num_workers:
        return
    bulks = [bulk for bulk in case.loader.bulks if "Tensor" not in bulk.type]
    each = sum(bulk.bytes for bulk in bulks)
    if each < BIG_BYTES or not bulks:
        return
    largest = max(bulks, key=lambda bulk: bulk.bytes)
    whole = each * case.num_workers
    available = case.facts.machine.memory_available_bytes if case.facts.machine else None
    is_short = available is not None and whole > 0.5 * available
    room = f"; {size(available)} are free" if available else ""
    yield Finding(
        weight=Weight.LIKELY if is_short or whole > 4096 * MB else Weight.POSSIBLE,
        what=f"every worker gets its own copy of the dataset: {case.num_workers} × {size(each)}",
        where=largest.place or case.built_at,
        why=f"{largest.path} ({largest.type}, {size(largest.bytes)}) is pickled and sent to each of them "
        f"({case.start_method}){room}",
        fix=(
            "antifreeze run {script}   (big arrays are shared)",
            "keep it in a file: numpy.load(path, mmap_mode='r') in each worker",
            "DataLoader(…, persistent_workers=True)" if not case.loader.persistent_workers else "fewer workers",
        ),
        evidence=(f"{case.num_workers} × {size(each)} = {size(whole)}",),
        rivals=() if is_short or whole > 4096 * MB else ("AF401",),
        decide=None if is_short or whole > 4096 * MB else "antifreeze run --stats {script}",
    )
