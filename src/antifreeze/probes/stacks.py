"""The Python stack of a process of a patient's: from outside, or written by itself where nobody may look."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from traceback import FrameSummary

from antifreeze.engine.supervise.stacks import Frame, parse
from antifreeze.probes.bounded import ask
from antifreeze.probes.places import is_ours, is_users
from antifreeze.probes.processes.spy import stacks_of
from antifreeze.probes.record_files import STACK_SIGNAL
from antifreeze.torch_side.frames import WORKER_LOOP

SIGNALLED_WITHIN_S = 0.5


def main_stack(pid: int) -> list[FrameSummary]:
    """Of the main thread, the innermost frame first; empty if it cannot be had."""
    thread = stacks_of([pid])[pid].main(pid)
    return [] if thread is None else _summaries(call.frame for call in thread.calls)


def signalled_stack(pid: int, written_to: Path) -> list[FrameSummary]:
    """The same, written by the process itself when it gets our signal; only for those that expect it."""
    if not written_to.exists():
        return []
    before = written_to.stat().st_size
    ask(pid, STACK_SIGNAL)
    deadline = time.monotonic() + SIGNALLED_WITHIN_S
    while written_to.stat().st_size == before and time.monotonic() < deadline:
        time.sleep(0.05)
    with written_to.open("rb") as file:
        file.seek(before)
        return current_stack(file.read().decode(errors="replace"))


def current_stack(said: str) -> list[FrameSummary]:
    """The stack of the thread that faulthandler calls the current one, the last time that it wrote."""
    stacks = parse(said)
    return _summaries(stacks[-1].frames) if stacks else []


def _summaries(frames: Iterable[Frame]) -> list[FrameSummary]:
    return [FrameSummary(frame.file, frame.line, frame.function, lookup_line=False) for frame in frames]


def own_part(stack: list[FrameSummary]) -> list[FrameSummary]:
    """What a worker is at: the stack of a forked one goes on with that of its trainer."""
    for place, frame in enumerate(stack):
        if frame.name == WORKER_LOOP:
            return stack[: place + 1]
    return stack


def library_of(stack: list[FrameSummary]) -> str:
    """The package, or the module of the standard library, that the innermost frame belongs to; empty: the user's own."""
    if not stack or is_users(stack[0].filename) or is_ours(stack[0].filename):
        return ""
    parts = Path(stack[0].filename).parts
    for directory in ("site-packages", "dist-packages"):
        if directory in parts[:-1]:
            return parts[len(parts) - parts[::-1].index(directory)].removesuffix(".py")
    return Path(stack[0].filename).stem
