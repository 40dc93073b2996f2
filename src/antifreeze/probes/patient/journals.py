"""Reads the journals that the workers of a trial have left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antifreeze.probes.patient.notes import State, read_events, read_state


@dataclass(frozen=True, slots=True)
class WorkerNotes:
    """What one worker process has written."""

    worker: int
    pid: int
    state: State | None
    events: list[dict[str, Any]]
    crash: str

    def all(self, key: str) -> Iterator[Any]:
        return (event[key] for event in self.events if key in event)

    def last(self, key: str) -> Any:
        return next(reversed(list(self.all(key))), None)


def worker_notes(directory: Path) -> list[WorkerNotes]:
    found = []
    for path in sorted(directory.glob("w*.events")):
        worker, pid = (int(number) for number in path.stem[1:].split("-"))
        crash = path.with_suffix(".crash")
        said = crash.read_text(errors="replace") if crash.exists() else ""
        found.append(WorkerNotes(worker, pid, read_state(path.with_suffix(".state")), read_events(path), said))
    return found


def contents_of(directory: Path) -> dict[str, dict[int, int]]:
    """Sample → worker → what it held there, as a number to compare by."""
    found: dict[str, dict[int, int]] = {}
    for notes in worker_notes(directory):
        for contents in notes.all("contents"):
            for sample, digest in contents.items():
                found.setdefault(sample, {})[notes.worker] = digest
    return found


def read_plain(path: Path, otherwise: Any = None) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return otherwise
