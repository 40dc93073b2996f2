"""The picture of a running program, read as a trial that hangs. Pure.

Only of a program that waits for its loader: workers that wait while the trainer is busy elsewhere are as they should
be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from antifreeze.doctor.facts import Outcome, Place, ProcessPicture, Stuck, Trial

_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages|lib/python\d[\d.]*|lib64/python\d[\d.]*)/|^<")
_LOADING = re.compile(r"torch/utils/data/|antifreeze/(iterator|adoption|engine/)")
_FETCHING = re.compile(r"torch/utils/data/_utils/fetch\.py$|antifreeze/engine/worker/fetch\.py$")
_COLLATING = re.compile(r"torch/utils/data/_utils/collate\.py$|antifreeze/engine/worker/collate\.py$")
_SPAWNED = re.compile(r"multiprocessing[./](spawn|forkserver)|--multiprocessing-fork|spawn_main")
WORKERS = ("worker", "our-worker")
_NO_LOADER = -1


def as_trial(processes: Sequence[ProcessPicture]) -> Trial | None:
    """None: there is no such program, or it does not wait for a loader."""
    trainer = next((process for process in processes if process.role == "trainer"), None)
    workers = [process for process in processes if process.role in WORKERS]
    if not workers and trainer is None:
        return None
    if trainer is not None and not waits_for_its_loader(trainer, has_workers=bool(workers)):
        return None
    is_spawned = any(_SPAWNED.search(process.command) for process in workers)
    return Trial(
        loader=_NO_LOADER,
        engine="antifreeze" if any(process.role == "our-worker" for process in workers) else "torch",
        workers=len(workers),
        outcome=Outcome.HANG,
        start_method=("spawn" if is_spawned else "fork") if workers else None,
        stuck=tuple(as_stuck(process) for process in (*workers, *([trainer] if trainer else []))),
    )


def waits_for_its_loader(trainer: ProcessPicture, *, has_workers: bool) -> bool:
    frames = main_frames(trainer)
    if frames:
        return any(_LOADING.search(frame.file) for frame in frames)
    # Without a stack: a trainer that sleeps beside living workers.
    return has_workers and trainer.cpu_share < 0.1 and trainer.waits_in in ("poll", "pipe", "lock")


def as_stuck(process: ProcessPicture) -> Stuck:
    frames = main_frames(process)
    native = next((name for name in process.native if name), "")
    return Stuck(
        role="trainer" if process.role == "trainer" else "worker",
        worker=process.worker,
        pid=process.pid,
        frames=frames,
        place=next((frame for frame in frames if is_of_the_user(frame)), None),
        stage=stage_of(frames),
        waits_in=process.waits_in,
        state="t" if process.tracer else process.state,
        cpu_share=process.cpu_share,
        library=" ".join(process.native) if native else "",
    )


def main_frames(process: ProcessPicture) -> tuple[Place, ...]:
    """Of its main thread, the innermost first."""
    threads = sorted(process.threads, key=lambda thread: not thread.is_main)
    return threads[0].frames if threads else ()


def stage_of(frames: Sequence[Place]) -> str | None:
    """What a worker is at, from its stack; None: it has none."""
    if not frames:
        return None
    for frame in frames:
        if _COLLATING.search(frame.file) or (_FETCHING.search(frame.file) and "collate_fn" in frame.text):
            return "collate"
        if _FETCHING.search(frame.file):
            return "fetch"
        if "init_fn" in frame.text:
            return "init"
    return "idle"


def is_of_the_user(place: Place) -> bool:
    return not _LIBRARY.search(place.file) and "antifreeze/" not in place.file
