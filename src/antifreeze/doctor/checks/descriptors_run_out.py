"""Batches that are kept, or are many, use up the open files that a process may have.

What happens: torch passes every tensor from a worker as an open file, and it stays open for as long as the tensor
lives. A list of batches, of losses' inputs or of `.numpy()` views (which are no copies) holds them all. At the limit,
often 1024 and sometimes 256, training ends with "Too many open files. Communication with the workers is no longer
possible" or "received 0 items of ancdata". If a worker runs out, it hangs without a message.

How we know: the error itself; or the source keeps (a part of) every batch, and there are more batches than the limit
allows.

What to do: `antifreeze run train.py`: our batches hold no open files. In your code keep copies:
`kept.append(x.clone())`, `x.numpy().copy()`. Or `ulimit -n 65536`, if the hard limit allows it, or
`torch.multiprocessing.set_sharing_strategy("file_system")`.

Looks like: AF204 shm-too-small, where memory is what runs out; AF903 few-descriptors, where the limit alone is low.

Read on: https://docs.pytorch.org/docs/stable/multiprocessing.html#file-descriptor-file-descriptor,
https://docs.python.org/3/library/resource.html#resource.RLIMIT_NOFILE
"""

from __future__ import annotations

from antifreeze.doctor.cases import Case, cases
from antifreeze.doctor.facts import Facts, Loader, LoaderLoop, Machine, Outcome, Place, Raised, Source, Trial
from antifreeze.doctor.finding import Finding, Weight

CODE = "AF203"
MESSAGES = ("Too many open files", "received 0 items of ancdata")
# Open in every program: standard streams, libraries' files, the loader's own pipes.
OTHERS = 32

_LOADER = Loader(
    number=0, num_workers=1, batches=600, built_at=Place("train.py", 30), iterated_at=Place("train.py", 30)
)
_LOOP = LoaderLoop(place=Place("train.py", 30), kept=(Place("train.py", 31, text='kept.append(sample["index"])'),))
SICK = Facts(
    machine=Machine(cpus=2, usable_cpus=2, descriptors_soft=256, descriptors_hard=256),
    source=Source(script="train.py", loops=(_LOOP,)),
    loaders=(_LOADER,),
    trials=(
        Trial(
            loader=0,
            engine="torch",
            workers=1,
            outcome=Outcome.ERROR,
            is_as_written=True,
            raised=Raised(type="RuntimeError", message="Too many open files. Communication …", stage="receive"),
        ),
    ),
)
HEALTHY = Facts(
    machine=Machine(cpus=2, usable_cpus=2, descriptors_soft=1024, descriptors_hard=4096),
    source=Source(script="train.py", loops=(_LOOP,)),
    loaders=(_LOADER,),
)


def examine(facts: Facts) -> list[Finding]:
    return [finding for case in cases(facts) for finding in _examine(case)]


def _examine(case: Case) -> list[Finding]:
    loop = case.loop
    kept = loop.kept if loop else ()
    limit = case.facts.machine.descriptors_soft if case.facts.machine else None
    is_seen = any(_says_it(trial) for trial in case.trials if trial.engine == "torch")
    needed = _needed(case) if kept else 0
    if not is_seen and (not case.num_workers or limit is None or needed + OTHERS <= limit):
        return []
    place = kept[0] if kept else case.built_at
    of = f"{kept[0].text or 'a line'} at {kept[0]} keeps (a part of) every batch" if kept else "batches"
    has = f"; the limit is {limit}" if limit is not None else ""
    batches = (
        f", and an epoch has {case.loader.batches:,} batches" if case.loader and case.loader.batches and kept else ""
    )
    return [
        Finding(
            code=CODE,
            weight=Weight.CERTAIN if is_seen else Weight.LIKELY,
            what="the program runs out of open files: each tensor from a worker holds one for as long as it lives",
            where=place,
            why=f"{of}{batches}{has}",
            fix=(
                "antifreeze run {script}",
                "keep a copy: .clone(), or .numpy().copy()",
                f"ulimit -n {_more(case)}"
                if _can_raise(case)
                else 'torch.multiprocessing.set_sharing_strategy("file_system")',
            ),
            evidence=("reproduced: Too many open files",)
            if is_seen
            else (f"{needed:,} tensors kept > {limit} open files",),
            loader=case.number,
            explains=("AF103", "AF305", "AF321"),
        )
    ]


def _says_it(trial: Trial) -> bool:
    said = f"{trial.raised.message if trial.raised else ''}\n{trial.stderr}"
    return any(message in said for message in MESSAGES)


def _needed(case: Case) -> int:
    """At least one tensor of every batch of an epoch."""
    return (case.loader.batches or 0) if case.loader else 0


def _can_raise(case: Case) -> bool:
    machine = case.facts.machine
    soft, hard = (machine.descriptors_soft, machine.descriptors_hard) if machine else (None, None)
    return soft is not None and hard is not None and hard > 4 * soft


def _more(case: Case) -> int:
    hard = case.facts.machine.descriptors_hard if case.facts.machine else None
    return min(65536, hard or 65536)
