"""The Python stack of a process of the target: seen from outside, or written by itself where we may not look."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from antifreeze.engine.supervise.stacks import Frame, parse
from antifreeze.probes.bounded import ask
from antifreeze.probes.places import is_ours
from antifreeze.probes.processes.spy import stacks_of
from antifreeze.probes.trials.record_files import STACK_SIGNAL

SIGNALLED_WITHIN_S = 0.5


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
