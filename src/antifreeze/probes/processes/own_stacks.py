"""The stack of a worker of ours, from itself: its engine taught it to write it down when a signal comes.

For where py-spy may not look: a user needs no more than his own rights for this. The signal is sent only to a process
that is known to catch it; any other would die of it.
"""

from __future__ import annotations

import os
import time

from antifreeze import machine
from antifreeze.engine.backends import process
from antifreeze.engine.supervise.stacks import Stack, parse
from antifreeze.probes.processes.loader_code import OUR_MEMORY
from antifreeze.probes.processes.spy import Call, Spied, SpiedThread

ANSWERS_WITHIN_S = 2.0
_SLICE_S = 0.05
_MOST_BYTES = 1 << 20


def ask_worker(pid: int) -> Spied | None:
    """What a worker of ours writes when it is asked; None: it is not one that can be asked, or does not answer."""
    board = machine.open_appended(pid, OUR_MEMORY)
    if board is None:
        return None
    try:
        return _ask(pid, board)
    finally:
        os.close(board)


def _ask(pid: int, board: int) -> Spied | None:
    pidfd = process.open_pidfd(pid)
    try:
        if not machine.catches(pid, process.STACK_SIGNAL):
            return None
        before = os.fstat(board).st_size
        process.ask_for_stack(pidfd)
        text = _read_from(board, before, deadline=time.monotonic() + ANSWERS_WITHIN_S)
    finally:
        os.close(pidfd)
    stacks = parse(text)
    return _spied(stacks[-1], pid) if stacks else None


def _read_from(board: int, start: int, *, deadline: float) -> str:
    """What is written from here on, until nothing more comes."""
    size = start
    while time.monotonic() < deadline:
        time.sleep(_SLICE_S)
        now = os.fstat(board).st_size
        if now > start and now == size:
            break
        size = now
    return os.pread(board, _MOST_BYTES, start).decode("utf-8", "replace")


def _spied(stack: Stack, pid: int) -> Spied:
    """As py-spy would have it; of the threads, only the main one is known by its number: it is the last."""
    return Spied(
        tuple(
            SpiedThread(
                id=pid if thread is stack.threads[-1] else 0,
                name=thread.name or "",
                has_gil=False,
                calls=tuple(Call(frame) for frame in thread.frames),
            )
            for thread in stack.threads
        )
    )
