"""The batches on their way do not fit into /dev/shm.

What happens: torch's workers put every tensor of every batch into shared memory, and `num_workers × prefetch_factor`
batches are on their way at once. Docker gives a container 64 MB for that. When it is full, training ends with "unable
to allocate shared memory(shm) … No space left on device"; with a collate_fn of your own the error is lost in a thread
of the worker, and training hangs for ever. (Older versions of torch died with "Bus error".)

How we know: the size of a batch, as it came from a worker, times the number of batches on their way, against the size
of /dev/shm; or of all batches of an epoch, where the source keeps them in a list; or the error itself, in a trial.

What to do: `antifreeze run train.py`: our batches travel in memory that /dev/shm does not limit. With torch's own
loader: a larger `docker run --shm-size=1g` or `--ipc=host`; fewer workers, `prefetch_factor=1`, smaller batches.

Looks like: AF205 shared-memory-overcommitted, where the program itself fills shared memory, and a worker dies of
SIGBUS.

Read on: https://docs.docker.com/reference/cli/docker/container/run/#options (`--shm-size`),
https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, Machine, Outcome, Place, Raised, Trial
from antifreeze.doctor.finding import Finding, Weight

MB = 1 << 20

_LOADER = Loader(number=0, built_at=Place("train.py", 41), num_workers=8, prefetch_factor=2, batch_size=32)
SICK = tried(
    _LOADER,
    as_written(
        Outcome.ERROR,
        workers=8,
        batch_bytes=26 * MB,
        raised=Raised(
            type="RuntimeError",
            message="unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)",
            stage="collate",
        ),
    ),
    machine=Machine(cpus=8, usable_cpus=8, shm_total_bytes=64 * MB, shm_free_bytes=64 * MB),
)
HEALTHY = tried(
    _LOADER,
    as_written(workers=8, batch_bytes=26 * MB),
    machine=Machine(cpus=8, usable_cpus=8, shm_total_bytes=2048 * MB, shm_free_bytes=2000 * MB),
)


@check("AF204", "shm-too-small", sick=SICK, healthy=HEALTHY)
def shm_too_small(case: LoaderCase) -> Iterator[Finding]:
    machine, loader, trials = case.facts.machine, case.loader, case.trials
    if machine is None or machine.shm_total_bytes is None or not loader.num_workers:
        return
    size = machine.shm_total_bytes
    is_seen = any(_is_full(trial) for trial in trials if trial.engine == "torch")
    batch = max((trial.batch_bytes for trial in trials if trial.batch_bytes), default=0)
    ahead = loader.num_workers * (loader.prefetch_factor or 2)
    if loader.batches is not None:
        ahead = min(ahead, loader.batches)
    if not is_seen and batch * ahead <= size:
        yield from _kept(case, loader, batch, size)
        return
    # Batches pile up only where training is slower than loading; a trial does not train.
    works = any(trial.is_as_written and trial.outcome is Outcome.OK for trial in trials)
    needs = f"a batch has {batch / MB:.0f} MB, and {ahead} of them are on their way at once" if batch else "its batches"
    fix = ["antifreeze run {script}", "docker run --shm-size=1g …"]
    if batch and batch <= size:
        fix.append("DataLoader(…, prefetch_factor=1) or fewer workers")
    yield Finding(
        weight=Weight.CERTAIN if is_seen else Weight.POSSIBLE if works else Weight.LIKELY,
        what="shared memory runs full, and the workers cannot hand over their batches",
        where=loader.built_at,
        why=f"/dev/shm has {size / MB:.0f} MB; {needs}",
        fix=tuple(fix),
        evidence=("reproduced: No space left on device",) if is_seen else (f"{ahead} × {batch / MB:.0f} MB",),
    )


def _kept(case: LoaderCase, loader: Loader, batch: int, size: int) -> Iterator[Finding]:
    """What a loop keeps of an epoch stays in /dev/shm."""
    loop, batches = case.loop, loader.batches or 0
    if loop is None or not loop.kept or batch * batches <= size:
        return
    is_all = loop.keeps_all and not loop.breaks
    yield Finding(
        weight=Weight.LIKELY if is_all else Weight.POSSIBLE,
        what="shared memory runs full: a batch from a worker stays there for as long as it, or a view of it, lives",
        where=loop.kept[0],
        why=f"{loop.kept[0].text or 'a line'} at {loop.kept[0]} keeps {'' if is_all else 'a part of '}every batch; an "
        f"epoch has {batches:,} of up to {batch / MB:.1f} MB, and /dev/shm has {size / MB:.0f} MB",
        fix=(
            "antifreeze run {script}",
            "keep a copy: .clone(), or .numpy().copy()",
            "docker run --shm-size=… larger than all that is kept",
        ),
        evidence=(f"{batches:,} × {batch / MB:.1f} MB kept > {size / MB:.0f} MB",),
        is_cause=False,
    )


def _is_full(trial: Trial) -> bool:
    said = f"{trial.raised.message if trial.raised else ''}\n{trial.stderr}"
    is_for_tensors = "/torch_" in said or "/dev/shm" in said  # a disk can be full as well
    return "unable to allocate shared memory" in said or ("No space left on device" in said and is_for_tensors)
