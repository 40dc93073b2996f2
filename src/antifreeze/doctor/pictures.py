"""The picture of a running program, read as trials that hang: one for each trainer that waits for its loader. Pure.

Only of what stays where it is: workers that get on, and workers that wait while the trainer is busy elsewhere, are as they
should be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from antifreeze.doctor.facts import Death, Outcome, Place, ProcessPicture, Stuck, Trial

WORKERS = ("worker", "our-worker")
LOOKED_S = 3.0
"""So long a process has to stay where it is before we say a word."""
_BETWEEN = ("stem", "fork-server")
_STOPPED = ("T", "t")
_FILE = re.compile(r"(?:^|\()([\w+]+)[^ ()]*\.so")  # `libgomp-e985.so.1`, `wait (libtorch_cpu.so)`
_SPAWNED = re.compile(r"multiprocessing[./](spawn|forkserver)|--multiprocessing-fork|spawn_main")
LIVE = -1
"""The number of the loader in a trial that is a running program."""


def as_trials(processes: Sequence[ProcessPicture]) -> list[Trial]:
    """Nothing: there is no such program, or nobody in it waits for a loader."""
    trainers = [process for process in processes if process.role == "trainer"]
    found = [
        _as_trial(trainer, workers_of(trainer, processes)) for trainer in trainers if waits_for_its_loader(trainer)
    ]
    known = {process.pid for process in processes}
    orphans = [process for process in processes if process.role in WORKERS and process.parent not in known]
    return [*found, *([_as_trial(None, orphans)] if orphans else [])]


def workers_of(trainer: ProcessPicture, processes: Sequence[ProcessPicture]) -> list[ProcessPicture]:
    """Those that work for it, directly or through a stem or a fork server."""
    parents = {process.pid for process in processes if process.role in _BETWEEN and process.parent == trainer.pid}
    parents.add(trainer.pid)
    return [process for process in processes if process.role in WORKERS and process.parent in parents]


def waits_for_its_loader(trainer: ProcessPicture) -> bool:
    """Whether it has been in the loader, or in the dataset, all the time; of one without a stack, whether it may be."""
    is_there = trainer.stage in ("next", "close", "start", "fetch", None)
    return is_there and (stays_s(trainer) >= LOOKED_S or trainer.state in _STOPPED)


def stays_s(process: ProcessPicture) -> float:
    """For how long it has been where it is: without moving, or at the same sample."""
    return max(process.still_s, process.same_place_s if process.stage != "idle" else 0.0)


def as_stuck(process: ProcessPicture) -> Stuck:
    is_worker = process.role != "trainer"
    return Stuck(
        role="worker" if is_worker else "trainer",
        worker=process.worker,
        pid=process.pid,
        sample=process.sample,
        seconds=stays_s(process),
        frames=main_frames(process),
        place=process.place,
        stage=process.stage if is_worker or process.stage == "fetch" else "idle",
        waits_in=process.waits_in,
        state="t" if process.tracer else process.state,
        cpu_share=process.cpu_share,
        library=_library(process.native),
    )


def _library(native: Sequence[str]) -> str:
    """The innermost native library, without what its file name adds to it: `libgomp`, `tokenizers`."""
    files = (_FILE.search(name) for name in native)
    names = (found[1] for found in files if found)
    return next((name for name in names if not name.startswith("libstdc++")), "")


def main_frames(process: ProcessPicture) -> tuple[Place, ...]:
    """Of its main thread, the innermost first."""
    return next((thread.frames for thread in process.threads if thread.is_main), ())


def _as_trial(trainer: ProcessPicture | None, workers: Sequence[ProcessPicture]) -> Trial:
    is_spawned = any(_SPAWNED.search(process.command) for process in workers)
    ended = [each for each in workers if each.state == "Z"]
    alive = [each for each in workers if each.state != "Z"]
    staying = [each for each in alive if each.state in _STOPPED or stays_s(each) >= LOOKED_S]
    return Trial(
        loader=LIVE,
        engine="antifreeze" if any(process.role == "our-worker" for process in workers) else "torch",
        workers=len(workers),
        outcome=Outcome.HANG,
        start_method=("spawn" if is_spawned else "fork") if workers else None,
        deaths=tuple(Death(worker=each.worker or 0, pid=each.pid, exitcode=each.exitcode) for each in ended),
        stuck=tuple(map(as_stuck, [*staying, *([trainer] if trainer else [])])),
    )
