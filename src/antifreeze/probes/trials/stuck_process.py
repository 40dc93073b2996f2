"""A process of the target as it is at one moment: its stack, what it waits for, what it has used."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from antifreeze import machine
from antifreeze.doctor.facts import Stuck
from antifreeze.engine.supervise.stacks import Frame, parse
from antifreeze.probes.bounded import ask
from antifreeze.probes.places import PlaceMaker, is_ours
from antifreeze.probes.processes.classify_stack import own_frames
from antifreeze.probes.processes.spy import stacks_of
from antifreeze.probes.trials.record_files import STACK_SIGNAL
from antifreeze.probes.trials.records import ProcessState

SIGNALLED_WITHIN_S = 0.5


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


# --- stacks: seen from outside, or written by the process itself where we may not look


def main_stack(pid: int) -> Sequence[Frame]:
    """Of the main thread, the innermost frame first; empty if it cannot be had."""
    thread = stacks_of([pid])[pid].main(pid)
    return () if thread is None else [call.frame for call in thread.calls]


def signalled_stack(pid: int, written_to: Path) -> Sequence[Frame]:
    """The same, written by the process itself when it gets our signal; only for those that expect it."""
    if not written_to.exists():
        return ()
    before = written_to.stat().st_size
    ask(pid, STACK_SIGNAL)
    deadline = time.monotonic() + SIGNALLED_WITHIN_S
    while written_to.stat().st_size == before and time.monotonic() < deadline:
        time.sleep(0.05)
    with written_to.open("rb") as file:
        file.seek(before)
        return current_stack(file.read().decode(errors="replace"))


def current_stack(said: str) -> Sequence[Frame]:
    """The stack of the thread that faulthandler calls the current one, the last time that it wrote."""
    stacks = parse(said)
    return stacks[-1].frames if stacks else ()


def library_of(stack: Sequence[Frame]) -> str:
    """The package, or the module of the standard library, that the innermost frame belongs to; empty: the user's own."""
    if not stack or stack[0].is_user_code or is_ours(stack[0].file):
        return ""
    return stack[0].package or Path(stack[0].file).stem
