"""A process of the target as it is at one moment: its stack, what it waits for, what it has used."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from antifreeze import machine
from antifreeze.doctor.facts import Stuck
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.processes.classify_stack import own_frames
from antifreeze.probes.trials.records import ProcessState
from antifreeze.probes.trials.stacks import library_of, main_stack, signalled_stack


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    facts = machine.process_facts(pid)
    return facts is not None and facts.state not in "ZX"


def stuck_process(
    pid: int,
    *,
    role: str,
    places: PlaceMaker,
    worker: int | None = None,
    state: ProcessState | None = None,
    since: float | None = None,
    cpu_before_s: float = 0.0,
    written_to: Path | None = None,
) -> Iterator[Stuck]:
    """What a process is at; nothing if there is none."""
    facts = machine.process_facts(pid)
    if facts is None:
        return
    stack = main_stack(pid) or (signalled_stack(pid, written_to) if written_to else ())
    if role == "worker":
        stack = own_frames(stack)
    frames, place = places.of_frames(stack)
    seconds = max(0.0, time.monotonic() - since) if since is not None else 0.0
    yield Stuck(
        role=role,
        worker=worker,
        pid=pid,
        sample=state.sample or None if state else None,
        seconds=seconds,
        typical_s=state.slowest_s if state and state.samples else None,
        frames=frames,
        place=place,
        stage=state.stage if state else None,
        waits_in=facts.waits_in,
        state=facts.state,
        cpu_share=(facts.cpu_s - cpu_before_s) / seconds if seconds > 0 else 0.0,
        library=library_of(stack),
    )
