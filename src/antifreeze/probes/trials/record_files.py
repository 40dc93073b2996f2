"""The files of an examination: which record lies where, and how each is written and read.

An examination has a directory, whose files are named below, and each trial one below it (`t01`, `t02` …):

    about             TrialStart        what is tried, and by which process
    trainer.state     ProcessState      what the trainer is at; w0-4711.state: the same of worker 0, process 4711
    trainer.log       TrainerRecord     what the trainer counted and what happened to it, a line each
    w0-4711.log       WorkerRecord      the same of a worker
    w0-4711.crash     text              what faulthandler wrote in it
    outside           SeenFromOutside   what the watcher saw

A state is one small record that is overwritten in place, which takes a microsecond or two; a log gets lines of JSON, each
written at once. Both outlive the process that wrote them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import time
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from antifreeze.doctor.facts import made_of
from antifreeze.probes.trials.records import ProcessState, Record

EXAMINE = "ANTIFREEZE_EXAMINE"
"""The environment variable that names the directory of the examination, in all processes of the target."""
LIMITS = "options"
PLACES = "places"
"""A TrialLimits and a PlaceMaker: what the watcher wants."""
SCRIPT = "script"
"""The number of the first Python process of the target."""
SCRIPT_RAISED = "script-raised"
"""A Raised: the exception that ended the script."""
SEEN_LOADERS = ("seen-0", "seen-1")
"""Are there when a loader without workers, and one with workers, has been iterated."""
CLAIM = "claim"
"""The number of the process that iterated a loader with workers first, and so is the trainer."""
LOADERS = "loaders"
"""A log: Loader, ProbeFault."""
FAULT = "fault"
"""The traceback of an error of ours in the trainer."""
DONE = "done"
"""Is there when the trainer has tried everything."""
STDERR = "stderr"
ABOUT, OUTSIDE = "about", "outside"
"""Of a trial."""
# Programs hardly ever use these.
STACK_SIGNAL = signal.SIGRTMIN + 8
"""A process that waits in native code can still be asked for its Python stacks."""
END_SIGNAL = signal.SIGRTMIN + 9
"""Ends a trial."""
STATE_BYTES = 512
_KINDS = {kind.__name__: kind for kind in typing.get_args(Record)}
R = TypeVar("R")


def write_whole(path: Path, record: Any) -> None:
    """A file that is there with all its contents, or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_text(_to_json(record))
    draft.replace(path)


def read_whole(path: Path, kind: type[R]) -> R | None:
    """None: it is not there."""
    try:
        found: R = made_of(kind, json.loads(path.read_text()))
    except (OSError, ValueError):
        return None
    return found


class StateFile:
    """A ProcessState, overwritten in place."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, stage: str, *, samples: int, batches: int, slowest_s: float, sample: str) -> None:
        record = f"{stage}\n{time.monotonic():.6f}\n{samples}\n{batches}\n{slowest_s:.6f}\n{sample}\n"
        with contextlib.suppress(OSError):  # the program may close descriptors that are not its own
            os.pwrite(self._fd, record.encode(errors="replace")[:STATE_BYTES].ljust(STATE_BYTES), 0)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)


def read_state(path: Path) -> ProcessState | None:
    try:
        stage, since, samples, batches, slowest, sample, *_ = path.read_text(errors="replace").split("\n")
        return ProcessState(stage, float(since), int(samples), int(batches), float(slowest), sample)
    except (OSError, ValueError):
        return None


class RecordLog:
    """Records, one line each."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, record: Record) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, f"{type(record).__name__} {_to_json(record)}\n".encode())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)


def add_record(path: Path, record: Record) -> None:
    """One more line of a log that is not open any more."""
    with contextlib.closing(RecordLog(path)) as log:
        log.write(record)


def has_record(path: Path, kind: type[Record]) -> bool:
    """The same as to read the log and look for one of this kind, but fast."""
    try:
        return f"\n{kind.__name__} ".encode() in b"\n" + path.read_bytes()
    except FileNotFoundError:  # the process has only begun
        return False


class LogRecords:
    """All whole lines of a log; a process that was killed may have left half of one."""

    def __init__(self, path: Path) -> None:
        self._found: list[Record] = []
        with contextlib.suppress(OSError):
            for line in path.read_text(errors="replace").splitlines():
                name, _, plain = line.partition(" ")
                if name in _KINDS:
                    with contextlib.suppress(ValueError):
                        self._found.append(made_of(_KINDS[name], json.loads(plain)))

    def all(self, kind: type[R]) -> Iterator[R]:
        return (each for each in self._found if isinstance(each, kind))

    def last(self, kind: type[R]) -> R | None:
        return next((each for each in reversed(self._found) if isinstance(each, kind)), None)


@dataclass(frozen=True, slots=True)
class WorkerFiles:
    """Those of one worker process in the directory of a trial."""

    worker: int
    pid: int
    stem: Path

    @classmethod
    def of(cls, directory: Path, worker: int, pid: int) -> WorkerFiles:
        return cls(worker, pid, directory / f"w{worker}-{pid}")

    @property
    def state(self) -> Path:
        return self.stem.with_suffix(".state")

    @property
    def log(self) -> Path:
        return self.stem.with_suffix(".log")

    @property
    def crash(self) -> Path:
        return self.stem.with_suffix(".crash")


def worker_files(directory: Path) -> list[WorkerFiles]:
    """Of all workers that a trial has had."""
    found = []
    for path in sorted(directory.glob("w*.state")):
        worker, pid = (int(number) for number in path.stem[1:].split("-"))
        found.append(WorkerFiles(worker, pid, path.with_suffix("")))
    return found


def trainer_state(directory: Path) -> Path:
    return directory / "trainer.state"


def trainer_log(directory: Path) -> Path:
    return directory / "trainer.log"


def trainer_crash(directory: Path) -> Path:
    """One for all trials: faulthandler is enabled once."""
    return directory.parent / "trainer.crash"


def _to_json(record: Any) -> str:
    return json.dumps(record, default=_fields)


def _fields(record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}


def short(thing: Any) -> str:
    """An index as facts name it."""
    try:
        text = repr(thing)
    except Exception:  # noqa: BLE001 - a user's __repr__
        text = f"<{type(thing).__name__}>"
    return text.replace("\n", " ")[:200]
