"""What the processes of a patient leave in files for us to read: how they are, and what happened to them.

A state is one small record that is overwritten in place, a microsecond or two each time; events are lines of JSON, each
written at once. Both outlive whoever wrote them, whatever ends it. Times are `time.monotonic`, one clock for the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORD_BYTES = 512
# Programs hardly ever use these.
STACK_SIGNAL = signal.SIGRTMIN + 8
"""Whoever waits in native code can still be asked for its Python stacks."""
END_SIGNAL = signal.SIGRTMIN + 9
"""Ends a trial."""


@dataclass(frozen=True, slots=True)
class State:
    """How a process was when it last wrote."""

    stage: str
    """`init`, `fetch`, `collate`, `idle`; of the trainer `start`, `next`, `fetch`, `collate`, `shutdown`, `ended`."""
    since: float
    samples: int
    """That it has finished."""
    batches: int
    slowest_s: float
    """Of its samples so far."""
    sample: str
    """The one that it is at."""


class StateFile:
    """One record, overwritten in place."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, stage: str, *, samples: int, batches: int, slowest_s: float, sample: str) -> None:
        record = f"{stage}\n{time.monotonic():.6f}\n{samples}\n{batches}\n{slowest_s:.6f}\n{sample}\n"
        with contextlib.suppress(OSError):  # the program may close descriptors that are not its own
            os.pwrite(self._fd, record.encode(errors="replace")[:RECORD_BYTES].ljust(RECORD_BYTES), 0)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)


def read_state(path: Path) -> State | None:
    try:
        stage, since, samples, batches, slowest, sample, *_ = path.read_text(errors="replace").split("\n")
        return State(stage, float(since), int(samples), int(batches), float(slowest), sample)
    except (OSError, ValueError):
        return None


class Log:
    """Events, one line each."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, **event: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, json.dumps(event).encode() + b"\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)


def read_events(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a process that was killed may have left half of one."""
    found = []
    with contextlib.suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def write_whole(path: Path, plain: Any) -> None:
    """A file that is there with all its contents, or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(plain))
    draft.replace(path)


def short(thing: Any) -> str:
    """An index as facts name it."""
    try:
        text = repr(thing)
    except Exception:  # noqa: BLE001 - a user's __repr__
        text = f"<{type(thing).__name__}>"
    return text.replace("\n", " ")[:200]
