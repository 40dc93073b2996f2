"""Few files may be open here: torch's own loader needs one descriptor for every tensor that is on its way or kept.

What happens: torch's workers hand over each tensor as a descriptor of shared memory, and it stays open for as long as the
tensor lives. A program that keeps its batches in a list, or whose batches are of very many tensors, reaches the limit:
"Too many open files. Communication with the workers is no longer possible"; if a worker reaches it, training hangs.

How we know: the soft limit, which is 1024 on most machines; and, of a script, a loop that keeps its batches, or batches
measured to be of so many tensors that those on their way take half of it.

What to do: `ulimit -n 65536` before the start, where the hard limit allows it. Keep copies of batches, not the batches
themselves: `kept.append(batch.clone())`. `antifreeze run train.py`: our batches hold no descriptors.
`torch.multiprocessing.set_sharing_strategy("file_system")` needs no descriptors, either, but names in /dev/shm instead.

Looks like: AF203 descriptors-run-out, which has seen it happen.

Read on: https://docs.pytorch.org/docs/stable/multiprocessing.html#file-descriptor-file-descriptor
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.check import program_check
from antifreeze.doctor.facts import Facts, LoaderLoop, Machine, Place, Source
from antifreeze.doctor.finding import Finding, Weight

USUAL = 1024
PLENTY = 65536

_FEW = Machine(cpus=8, usable_cpus=8, descriptors_soft=1024, descriptors_hard=1048576)
_KEEPS = LoaderLoop(place=Place("train.py", 20), kept=(Place("train.py", 21, text="seen.append(batch)"),))
SICK = Facts(machine=_FEW, source=Source(script="train.py", loops=(_KEEPS,)))
HEALTHY = Facts(machine=_FEW, source=Source(script="train.py", loops=(LoaderLoop(place=Place("train.py", 20)),)))


@program_check("AF903", "few-descriptors", sick=SICK, healthy=HEALTHY)
def few_descriptors(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    if machine is None or machine.descriptors_soft is None or machine.descriptors_soft > USUAL:
        return
    reason = _reason(facts, machine.descriptors_soft)
    if reason is None:
        return
    why, where = reason
    hard = machine.descriptors_hard
    yield Finding(
        weight=Weight.POSSIBLE,
        what="torch's own loader may run out of descriptors, and then fails or hangs",
        where=where,
        why=f"a process may have {machine.descriptors_soft} files open here; {why}",
        fix=(f"ulimit -n {PLENTY if hard is None else min(PLENTY, hard)}", "antifreeze run {script}"),
        evidence=(f"soft limit {machine.descriptors_soft}, hard limit {'none' if hard is None else hard}",),
        decide="antifreeze doctor {script}" if facts.run is None else None,
    )


def _reason(facts: Facts, limit: int) -> tuple[str, Place | None] | None:
    """Why so few may be too few, and where; of a machine without a program, that they are few is enough."""
    if facts.processes:
        return None
    for trial in facts.trials:
        loader = facts.loader(trial.loader)
        if loader is not None and trial.batch_tensors:
            ahead = loader.num_workers * (loader.prefetch_factor or 2)
            if ahead * trial.batch_tensors * 2 > limit:
                return f"{ahead} batches of {trial.batch_tensors} tensors are on their way at once", loader.built_at
    for loop in facts.source.loops if facts.source else ():
        if loop.kept:
            return f"{loop.kept[0]} keeps what a batch is made of", loop.kept[0]
    if facts.source is None and not facts.loaders:
        return "every tensor that is on its way from a worker, or kept, takes one", None
    return None
