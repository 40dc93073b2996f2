"""Workers live on after the training process was killed.

What happens: torch's workers look whether their parent is alive only while they wait for the next batch. One that sits
in a sample (a dead mount, a long read) never looks. When the training process is killed, by `kill -9` or by the
scheduler, such workers stay, with their memory, files and ports, and the next job finds the machine full.

How we know: in a trial the process was killed as a scheduler would do it, and workers were still there afterwards; it is
no more than possible where the training is the script itself, which may never be killed. Or the workers of a running
program have no parent any more.

What to do: `antifreeze run train.py`: our workers end within two seconds of their trainer, however it ends. With
torch's loader: kill the whole process group or container, and bound the time of every read (AF103).

Looks like: AF405 slow-shutdown, where workers hold up a training that ends by itself.

Read on: https://docs.pytorch.org/docs/stable/multiprocessing.html (the warning on processes that exit abruptly),
https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from antifreeze.doctor.cases import LoaderCase, at
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import FORKED, as_written, tried
from antifreeze.doctor.facts import Outcome, Place, ProcessPicture, Run, Stuck
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.pictures import as_stuck

INIT = 1
DECIDE = "ps -ef | grep {script}   (after the next kill)"

_LINE = Place("train.py", 29, "__getitem__", "time.sleep(600)")
SICK = tried(
    FORKED,
    as_written(
        Outcome.HANG,
        orphans=(Stuck(role="worker", worker=0, pid=4243, sample="8", place=_LINE, stage="fetch", waits_in="sleep"),),
    ),
    run=Run(command="train.py", outcome=Outcome.OK, reached_a_loader=True, is_trainer_a_child=True),
)
HEALTHY = tried(FORKED, as_written())


@check("AF106", "orphaned-workers", sick=SICK, healthy=HEALTHY)
def orphaned_workers(case: LoaderCase) -> Iterator[Finding]:
    return _found(case.facts.processes) if case.is_live else _seen(case)


def _seen(case: LoaderCase) -> Iterator[Finding]:
    seen = [trial for trial in case.trials if trial.orphans]
    if not seen:
        return
    finding = _finding(seen[0].orphans, evidence="reproduced: the trainer was killed", is_live=False)
    # Whoever hangs outlives its trainer. It is a problem of its own where somebody ends the trainer: a parent, a launcher.
    yield finding if case.has_launcher else replace(finding, weight=Weight.POSSIBLE, rivals=("AF103",), decide=DECIDE)


def _found(processes: tuple[ProcessPicture, ...]) -> Iterator[Finding]:
    """Workers whose parent is not of this program."""
    pids = {process.pid for process in processes}
    left = [each for each in processes if each.role == "worker" and each.parent == INIT and INIT not in pids]
    if not left:
        return
    yield _finding(tuple(as_stuck(each) for each in left), evidence="their parent process is gone", is_live=True)


def _finding(left: tuple[Stuck, ...], *, evidence: str, is_live: bool) -> Finding:
    place = next((each.place for each in left if each.place), None)
    sample = next((each.sample for each in left if each.sample), None)
    at_sample = f" with sample {sample}" if sample is not None else ""
    pids = ", ".join(str(each.pid) for each in left[:8])
    return Finding(
        weight=Weight.CERTAIN,
        what=f"{len(left)} worker{'s' * (len(left) > 1)} lived on after the training process was killed",
        where=place,
        why=f"torch's workers look for their parent between batches only; these were busy{at(place)}{at_sample}",
        fix=(
            "antifreeze run {script}",
            f"kill {pids.replace(',', '')}" if is_live else "kill the whole process group: kill -9 -- -PGID",
            "bound the time of every read in the dataset",
        ),
        evidence=(evidence, f"pids {pids}"),
        worker=left[0].worker,
        pid=left[0].pid,
        sample=sample,
    )
