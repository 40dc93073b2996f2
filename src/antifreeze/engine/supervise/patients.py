"""A worker that is stuck, or has ended, as a patient: what the engine knows about it → what the doctor says. Pure.

The same checks that `antifreeze doctor` asks, so that an error, a report and the command line name the same disease.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from antifreeze.doctor.facts import Death, Facts, Loader, NativePool, Outcome, Place, Stuck, Trial
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.engine.supervise.stacks import Frame, Stack

SourceOf = Callable[[str, int], str]
"""File and line → the text there."""


class Surroundings(NamedTuple):
    """What there is in the trainer that may freeze a worker."""

    workers: int
    start_method: str
    """That its workers came to be with: `fork`, of a grown stem; `spawn`, of a clean one."""
    threads: tuple[str, ...] = ()
    libraries: tuple[tuple[str, str], ...] = ()
    """Those whose thread pools a fork loses, and why."""
    is_cuda_initialized: bool = False


def disease_of_stuck(stuck: Stuck, surroundings: Surroundings) -> Finding | None:
    """What a worker that makes no progress has."""
    found = _surest(_trial(surroundings, Outcome.HANG, stuck=(stuck,)))
    # It may still come back: only that it is stopped is the kernel's word.
    is_certain = stuck.state == "T"
    return found if found is None or is_certain else replace(found, weight=max(found.weight, Weight.LIKELY))


def disease_of_dead(deaths: Sequence[Death], surroundings: Surroundings) -> Finding | None:
    """What workers died of, who all ended at the same place."""
    return _surest(_trial(surroundings, Outcome.CRASH, deaths=tuple(deaths)))


def as_places(stack: Stack | None, source_of: SourceOf) -> tuple[Place, ...]:
    """The frames of a stack, the innermost first."""
    return tuple(_place(frame, source_of) for frame in stack.frames) if stack else ()


def place_of_user(stack: Stack | None, source_of: SourceOf) -> Place | None:
    """The innermost line of a stack that is the user's."""
    frames = stack.frames if stack else ()
    return next((_place(frame, source_of) for frame in frames if frame.is_user_code), None)


def how_it_ended(exitcode: int | None) -> str:
    """The way out that an exit code stands for: the name of a signal, or `exit`."""
    if exitcode is None:
        return ""
    if exitcode >= 0:
        return "exit"
    try:
        return signal.Signals(-exitcode).name
    except ValueError:  # most real-time signals have none
        return f"signal {-exitcode}"


def _place(frame: Frame, source_of: SourceOf) -> Place:
    return Place(frame.file, frame.line, frame.function, source_of(frame.file, frame.line))


def _trial(
    surroundings: Surroundings, outcome: Outcome, *, stuck: tuple[Stuck, ...] = (), deaths: tuple[Death, ...] = ()
) -> Facts:
    loader = Loader(
        number=0,
        num_workers=surroundings.workers,
        start_method=surroundings.start_method,
        threads=surroundings.threads,
        pools=tuple(
            NativePool(library=package, kind="", threads=0, is_used=True, why=why)
            for package, why in surroundings.libraries
        ),
        is_cuda_initialized=surroundings.is_cuda_initialized,
    )
    trial = Trial(
        loader=0,
        engine="antifreeze",
        workers=surroundings.workers,
        outcome=outcome,
        is_as_written=True,
        start_method=surroundings.start_method,
        stuck=stuck,
        deaths=deaths,
    )
    return Facts(loaders=(loader,), trials=(trial,))


def _surest(facts: Facts) -> Finding | None:
    from antifreeze.doctor.diagnosis import diagnose  # noqa: PLC0415 - sixty checks, which a calm run does not need

    try:
        return next(iter(diagnose(facts)), None)
    except Exception:  # noqa: BLE001 - a fault of the doctor's must not cost a training that goes on without its word
        return None
