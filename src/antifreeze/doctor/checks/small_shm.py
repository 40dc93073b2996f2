"""There is little shared memory here: torch's own loader may run out of it.

What happens: torch's workers hand over every batch in /dev/shm, `num_workers × prefetch_factor` of them at once. A
container of docker's has 64 MB of it unless somebody asks for more. Whether that is enough depends on the batches.

How we know: the size of /dev/shm. This is a note about the machine; a script that is examined gets AF204 if its batches do
not fit, and nothing if they do.

What to do: `docker run --shm-size=1g …` or `--ipc=host`; in kubernetes, a volume `emptyDir: {medium: Memory}` at /dev/shm.
`antifreeze run train.py` needs none of it: our batches travel in memory that /dev/shm does not limit.

Looks like: AF204 shm-too-small, which has measured the batches.

Read on: https://docs.docker.com/reference/cli/docker/container/run/#options (`--shm-size`)
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.check import program_check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Facts, Loader, Machine
from antifreeze.doctor.finding import Finding, Weight

MB = 1 << 20
# What is usually asked for, and enough for most pictures at most batch sizes.
ENOUGH_BYTES = 1000 * MB

_SMALL = Machine(cpus=8, usable_cpus=8, shm_total_bytes=64 * MB, shm_free_bytes=64 * MB)
SICK = Facts(machine=_SMALL)
HEALTHY = tried(Loader(number=0, num_workers=2, prefetch_factor=2), as_written(batch_bytes=MB), machine=_SMALL)


@program_check("AF902", "small-shm", sick=SICK, healthy=HEALTHY)
def small_shm(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    if machine is None or machine.shm_total_bytes is None or machine.shm_total_bytes >= ENOUGH_BYTES:
        return
    if facts.processes or (facts.loaders and all(_is_settled(facts, loader) for loader in facts.loaders)):
        return
    size = f"{machine.shm_total_bytes / MB:.0f} MB"
    yield Finding(
        weight=Weight.POSSIBLE,
        what="torch's own loader may run out of shared memory, and then fails or hangs",
        why=f"/dev/shm has {size}, and every batch on its way from a worker takes its share of that",
        fix=("antifreeze run {script}", "docker run --shm-size=1g …"),
        evidence=(f"/dev/shm: {size}",),
        decide="antifreeze doctor {script}",
    )


def _is_settled(facts: Facts, loader: Loader) -> bool:
    """Whether it needs no shared memory, or its batches were measured: then AF204 has the word."""
    return not loader.num_workers or any(
        trial.batch_bytes is not None for trial in facts.trials if trial.loader == loader.number
    )
