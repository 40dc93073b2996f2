"""Asks the doctor about a worker that is stuck or has ended: gathers what the engine and this process know about it."""

from __future__ import annotations

import linecache

from antifreeze.doctor.facts import Death, Stuck
from antifreeze.doctor.finding import Finding
from antifreeze.engine.backends.hazards.search import present
from antifreeze.engine.pool.happenings import Lost
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.supervise import patients
from antifreeze.engine.supervise.cause import Cause
from antifreeze.engine.supervise.stacks import Stack


def about_stuck(
    worker: Worker,
    stack: Stack | None,
    *,
    sample: str | None,
    seconds: float,
    typical_s: float | None,
    waits_in: str | None,
    is_stopped: bool,
    is_at_work: bool,
    workers: int,
) -> Finding | None:
    """What a worker that makes no progress has; None: nothing that the doctor knows."""
    stuck = Stuck(
        role="worker",
        worker=int(worker.number),
        pid=worker.known_pid or -1,
        sample=sample,
        seconds=seconds,
        typical_s=typical_s,
        frames=patients.as_places(stack, _source_of),
        place=patients.place_of_user(stack, _source_of),
        stage="fetch" if sample is not None else None,
        waits_in=waits_in,
        state="T" if is_stopped else "R" if is_at_work else "S",
        cpu_share=1.0 if is_at_work else 0.0,
    )
    return patients.disease_of_stuck(stuck, _surroundings(worker, workers))


def about_dead(
    lost: Lost, stack: Stack | None, cause: Cause, *, sample: str | None, times: int, workers: int
) -> Finding | None:
    """What a worker died of, the last of so many that ended there."""
    death = Death(
        worker=int(lost.worker.number),
        pid=lost.pid or -1,
        exitcode=lost.exitcode,
        sample=sample,
        place=patients.place_of_user(stack, _source_of),
        how=patients.how_it_ended(lost.exitcode),
        is_oom=cause.is_oom,
    )
    return patients.disease_of_dead([death] * times, _surroundings(lost.worker, workers))


def _surroundings(worker: Worker, workers: int) -> patients.Surroundings:
    here = present()
    return patients.Surroundings(
        workers=workers,
        start_method="fork" if worker.stem.kind == "grown" else "spawn",
        threads=here.threads,
        libraries=here.libraries,
        is_cuda_initialized=here.is_cuda_initialized,
    )


def _source_of(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()
