"""Batches that are kept, or are many, use up the open files that a process may have.

What happens: torch passes every tensor from a worker as an open file, and it stays open for as long as the tensor
lives. A list of batches, of losses' inputs or of `.numpy()` views (which are no copies) holds them all. At the limit,
often 1024 and sometimes 256, training ends with "Too many open files. Communication with the workers is no longer
possible" or "received 0 items of ancdata". If a worker runs out, it hangs without a message.

How we know: the error itself; or the source keeps (a part of) every batch, and there are more batches than the limit
allows. A dataset that meets the limit without workers, too, holds the files itself.

What to do: `antifreeze run train.py`: our batches hold no open files. In your code keep copies:
`kept.append(x.clone())`, `x.numpy().copy()`. Or `ulimit -n 65536`, if the hard limit allows it, or
`torch.multiprocessing.set_sharing_strategy("file_system")`.

Looks like: AF204 shm-too-small, where memory is what runs out; AF903 few-descriptors, where the limit alone is low.

Read on: https://docs.pytorch.org/docs/stable/multiprocessing.html#file-descriptor-file-descriptor,
https://docs.python.org/3/library/resource.html#resource.RLIMIT_NOFILE
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Facts, Loader, LoaderLoop, Machine, Outcome, Place, Raised, Source, Trial
from antifreeze.doctor.finding import Finding, Weight

MESSAGES = ("Too many open files", "received 0 items of ancdata")
# Open in every program: standard streams, libraries' files, the loader's own pipes.
OTHERS = 32

_LOADER = Loader(
    number=0, num_workers=1, batches=600, built_at=Place("train.py", 30), iterated_at=Place("train.py", 30)
)
_LOOP = LoaderLoop(place=Place("train.py", 30), kept=(Place("train.py", 31, text='kept.append(sample["index"])'),))
SICK = tried(
    _LOADER,
    as_written(
        Outcome.ERROR,
        workers=1,
        raised=Raised(type="RuntimeError", message="Too many open files. Communication …", stage="receive"),
    ),
    machine=Machine(cpus=2, usable_cpus=2, descriptors_soft=256, descriptors_hard=256),
    source=Source(script="train.py", loops=(_LOOP,)),
)
HEALTHY = Facts(
    machine=Machine(cpus=2, usable_cpus=2, descriptors_soft=1024, descriptors_hard=4096),
    source=Source(script="train.py", loops=(_LOOP,)),
    loaders=(_LOADER,),
)


@check("AF203", "descriptors-run-out", sick=SICK, healthy=HEALTHY)
def descriptors_run_out(case: LoaderCase) -> Iterator[Finding]:
    own = next((trial.raised for trial in case.trials if _is_datasets_own(trial)), None)
    if own is not None:
        yield _of_dataset(case, own)
        return
    loop = case.loop
    kept = loop.kept if loop else ()
    limit = _limit(case)
    is_seen = any(_says_it(trial) for trial in case.trials if trial.engine == "torch")
    weight, needed = (Weight.CERTAIN, 0) if is_seen else _foreseen(case)
    if weight is None:
        return
    place = kept[0] if kept else case.built_at
    of = f"{kept[0].text or 'a line'} at {kept[0]} keeps (a part of) every batch" if kept else _on_their_way(case)
    has = f"; the limit is {limit}" if limit is not None else ""
    batches = f", and an epoch has {case.loader.batches:,} batches" if case.loader.batches and kept else ""
    yield Finding(
        weight=weight,
        what="the program runs out of open files: each tensor from a worker holds one for as long as it lives",
        where=place,
        why=f"{of}{batches}{has}",
        fix=(
            "antifreeze run {script}",
            "keep a copy: .clone(), or .numpy().copy()"
            if kept or not _tensors(case)
            else "put the tensors of a batch into few large ones (torch.cat, torch.stack) in the collate_fn",
            f"ulimit -n {_more(case)}"
            if _can_raise(case)
            else 'torch.multiprocessing.set_sharing_strategy("file_system")',
        ),
        evidence=("reproduced: Too many open files",)
        if is_seen
        else (f"{needed:,} tensors kept > {limit} open files",),
    )


def _of_dataset(case: LoaderCase, raised: Raised) -> Finding:
    """The dataset itself opens too many: tensors have no part in it."""
    more = (f"ulimit -n {_more(case)}   (puts it off)",) if _can_raise(case) else ()
    limit = f" of {_limit(case)}" if _limit(case) is not None else ""
    return Finding(
        weight=Weight.CERTAIN,
        what="the dataset opens files and does not close them, until no more may be open",
        where=raised.place or case.built_at,
        why=f"sample {raised.sample} meets the limit{limit} without workers, too: the files are the dataset's, not tensors",
        fix=("close each file when it is read: with open(…) as file: …", *more),
        evidence=("reproduced without workers", f"{raised.type}: {raised.message}"),
        sample=raised.sample,
    )


def _is_datasets_own(trial: Trial) -> bool:
    raised = trial.raised
    return (
        not trial.workers and raised is not None and raised.stage == "fetch" and "Too many open files" in raised.message
    )


def _foreseen(case: LoaderCase) -> tuple[Weight | None, int]:
    """How sure it is that what the loop keeps of an epoch is too much, and how many tensors that is."""
    loop, limit = case.loop, _limit(case)
    batches = case.loader.batches or 0
    if loop is None or not loop.kept or not case.num_workers or limit is None:
        return None, 0
    most = batches * max(_tensors(case), 1)
    if batches + OTHERS > limit:
        return Weight.LIKELY, batches
    if most + OTHERS > limit:
        return (Weight.LIKELY if loop.keeps_all and not loop.breaks else Weight.POSSIBLE), most
    return None, 0


def _tensors(case: LoaderCase) -> int:
    """Of the largest batch; 0: not known."""
    return max((trial.batch_tensors or 0 for trial in case.trials), default=0)


def _on_their_way(case: LoaderCase) -> str:
    ahead = case.num_workers * (case.loader.prefetch_factor or 2)
    tensors = _tensors(case)
    return (
        f"{ahead} batches of up to {tensors} tensors are on their way at once" if tensors else "its batches need more"
    )


def _limit(case: LoaderCase) -> int | None:
    """As the program has set it; else the machine's."""
    if case.loader.descriptors is not None:
        return case.loader.descriptors
    return case.facts.machine.descriptors_soft if case.facts.machine else None


def _says_it(trial: Trial) -> bool:
    said = f"{trial.raised.message if trial.raised else ''}\n{trial.stderr}"
    return any(message in said for message in MESSAGES)


def _can_raise(case: LoaderCase) -> bool:
    machine = case.facts.machine
    soft, hard = _limit(case), machine.descriptors_hard if machine else None
    return soft is not None and hard is not None and hard > 4 * soft


def _more(case: LoaderCase) -> int:
    hard = case.facts.machine.descriptors_hard if case.facts.machine else None
    return min(65536, hard or 65536)
