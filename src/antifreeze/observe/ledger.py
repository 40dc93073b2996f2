"""The ledger: all that deviated from a calm run, one record each.

The newest records are kept in memory; how many there were of each kind is never forgotten. On request each is also a line
of JSON in a file, written at once: whatever ends the trainer, the kernel has it. The ledger never raises and never
waits: what becomes of a file that cannot be written is a record, too.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypedDict, Unpack, overload

from antifreeze.observe.say import say_once

# Kept in memory: a few MB, and more than anybody reads.
MOST_RECORDS = 10_000
# A file ends here: nobody opens a larger one, and a loop of mishaps must not fill the disk.
MOST_BYTES = 64 << 20
# Characters of a text that are kept, so that a batch printed into an exception does not become the ledger.
MOST_CHARACTERS, MOST_OF_EXCEPTION, MOST_OF_STACK = 500, 2_000, 8_000
# The last line of a file that is full ends so, whoever wrote it.
_END = b'"kind": "ledger-trouble", "what": "this file has reached its largest size and ends here"}\n'


class Kind(StrEnum):
    """What a record is about."""

    HANDLE_RENEWED = "handle-renewed"
    """A fork breaks something that workers use, and each worker has mended it for itself."""
    RISKY_FORK = "risky-fork"
    """Workers are forked although a fork breaks something that they may use."""
    IN_PROCESS = "in-process"
    """Batches are made in the trainer itself: no worker could make them, or a fault of ours has ended the workers."""
    WORKER_REPLACED = "worker-replaced"
    """A worker ended, or was stopped, and another does its work again."""
    WORKER_RENEWED = "worker-renewed"
    """A worker had copied much of the memory that workers share, by reading it, and another goes on where it stopped."""
    SAMPLE_RETRIED = "sample-retried"
    """A sample failed and was fetched again."""
    SAMPLE_SKIPPED = "sample-skipped"
    """A batch went without one of its samples."""
    SAMPLE_REPLACED = "sample-replaced"
    """Another sample took the place of one that failed."""
    SAMPLE_QUARANTINED = "sample-quarantined"
    """A sample will not be fetched any more."""
    BATCH_SKIPPED = "batch-skipped"
    """The epoch went without a whole batch."""
    STALL = "stall"
    """A worker made no progress for far longer than samples take."""
    HEDGE_STARTED = "hedge-started"
    """A second worker got the same batch as one that is stuck."""
    HEDGE_WON = "hedge-won"
    """The second worker was first."""
    HEDGE_LOST = "hedge-lost"
    """The one that was stuck came back first."""
    HEDGE_GIVEN_UP = "hedge-given-up"
    """The second worker never came to life, or is stuck where the first was not: there may be another in its stead."""
    HEDGE_STUCK = "hedge-stuck"
    """The second worker is stuck where the first one is."""
    NO_SNAPSHOT = "no-snapshot"
    """A worker took over without the random state of the one before it: all was made again, or its draws begin anew."""
    STREAM_READ_AGAIN = "stream-read-again"
    """A worker took over from one that had read a part of an iterable dataset, and read that part again."""
    WORKER_GIVEN_UP = "worker-given-up"
    """One worker fewer runs, after the machine had run out of memory."""
    MEMORY_SHORT = "memory-short"
    """A worker waits for shared memory, of which there was none when it had a batch to put into it."""
    WINDOW_SHRUNK = "window-shrunk"
    """Fewer batches are prepared ahead, to stay within the memory there is."""
    DOUBT = "doubt"
    """A result is silently wrong, as torch's is, or looks like it; the text names the cure."""
    ERROR_RAISED = "error-raised"
    """The user's loop was given an exception."""
    LEDGER_TROUBLE = "ledger-trouble"
    """The file of the ledger could not be written."""


class Facts(TypedDict, total=False):
    """What may be known beside kind, text and time: the optional fields of `Record`."""

    worker: int | None
    pid: int | None
    batch: int | None
    sample: str | None
    attempt: int | None
    exception: str | None
    signal: str | None
    exitcode: int | None
    stack: str | None
    code: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened."""

    kind: Kind
    what: str
    """One line for people."""
    time_s: float
    """When, in seconds since 1970."""
    worker: int | None = None
    pid: int | None = None
    """Of the worker."""
    batch: int | None = None
    """Number of the batch, counted from 0 in its epoch."""
    sample: str | None = None
    """Index of the sample, as `repr` writes it."""
    attempt: int | None = None
    """How often this had been tried, counted from 1."""
    exception: str | None = None
    """Type and message."""
    signal: str | None = None
    """Name of the signal that ended the worker, as `SIGKILL`."""
    exitcode: int | None = None
    """As `multiprocessing.Process.exitcode`: negative for a signal."""
    stack: str | None = None
    """Python stack of the worker."""
    code: str | None = None
    """The disease that the doctor sees in it, as `AF103`; `antifreeze explain AF103` tells about it."""

    def as_json(self) -> str:
        """One line of JSON; what is not known is left out."""
        values = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return json.dumps({name: value for name, value in values if value is not None})


class Ledger:
    """The newest records, oldest first, and the number of all that ever were, by kind."""

    def __init__(
        self,
        file: str | os.PathLike[str] | None = None,
        *,
        most: int = MOST_RECORDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """With `file`, every record is appended to it as well; an empty file says that nothing has happened."""
        self._records: deque[Record] = deque(maxlen=most)
        self._counts: Counter[Kind] = Counter()
        self._clock = clock
        self._troubles: set[str] = set()
        self._unwritten = 0
        self._path = None if file is None else _absolute(file)
        self._write(b"")

    def add(self, kind: Kind, what: str, **facts: Unpack[Facts]) -> Record:
        """Note that something happened, now."""
        record = Record(kind, _one_line(what), self._clock(), **_clipped(facts))
        self._keep(record)
        line = record.as_json()
        if self._unwritten:
            gap = f"records before the next that could not be written: {self._unwritten}"
            line = f"{Record(Kind.LEDGER_TROUBLE, gap, record.time_s).as_json()}\n{line}"
        self._write(f"{line}\n".encode())
        return record

    @property
    def counts(self) -> Counter[Kind]:
        """How many records there were of each kind, also of those that are no longer kept."""
        return Counter(self._counts)

    @property
    def dropped(self) -> int:
        """How many records are no longer kept."""
        return self._counts.total() - len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._records))  # as they are now: more may come while the user reads

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...
    def __getitem__(self, index: int | slice) -> Record | tuple[Record, ...]:
        return tuple(self._records)[index] if isinstance(index, slice) else self._records[index]

    __hash__ = None  # type: ignore[assignment]  # for it changes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return (self._records, self._counts) == (other._records, other._counts)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in self._counts.items()) or "nothing happened"
        dropped = f"; the oldest {self.dropped} are no longer kept" if self.dropped else ""
        return f"<Ledger: {counts}{dropped}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Everything but the file, which stays with this process."""
        return _restored, (tuple(self._records), self.counts, self._records.maxlen)

    def _keep(self, record: Record) -> None:
        self._records.append(record)
        self._counts[record.kind] += 1

    def _write(self, lines: bytes) -> None:
        if self._path is None:
            return
        try:
            _append(self._path, lines, now=self._clock())
            self._unwritten = 0
        except (OSError, ValueError) as error:  # ValueError: a path that cannot be one
            self._unwritten += bool(lines)
            self._note_trouble(str(getattr(error, "strerror", None) or error))

    def _note_trouble(self, reason: str) -> None:
        if reason in self._troubles:
            return
        self._troubles.add(reason)
        what = f"the ledger cannot be written to {self._path}: {reason}"
        self._keep(Record(Kind.LEDGER_TROUBLE, _one_line(what), self._clock()))
        say_once(what)


def _restored(records: tuple[Record, ...], counts: Counter[Kind], most: int) -> Ledger:
    ledger = Ledger(most=most)
    ledger._records.extend(records)
    ledger._counts.update(counts)
    return ledger


def _append(path: str, lines: bytes, *, now: float) -> None:
    """Add whole lines in one write.

    The file is opened each time: no descriptor to be shared by a fork, to be counted as a leak, or to point at a file that
    somebody has moved away. And for reading, too, to see its end: besides, a pipe that nobody reads is then no wait.
    """
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if lines:
            _write_lines(fd, lines, size=status.st_size, now=now)
    finally:
        os.close(fd)


def _write_lines(fd: int, lines: bytes, *, size: int, now: float) -> None:
    tail = os.pread(fd, len(_END), max(0, size - len(_END)))
    # A writer that was killed, or a disk that was full, can have left a part of a line.
    start = b"\n" if tail and not tail.endswith(b"\n") else b""
    has_ended = tail == _END
    if has_ended or size + len(lines) > MOST_BYTES:
        if not has_ended:
            os.write(fd, start + f'{{"time_s": {now!r}, '.encode() + _END)
        raise OSError(errno.EFBIG, f"it has reached {MOST_BYTES >> 20} MiB, and ends there")
    if os.write(fd, start + lines) < len(start + lines):
        raise OSError(errno.ENOSPC, "there was room for a part of a line only")


def _absolute(file: str | os.PathLike[str]) -> str:
    try:
        return os.path.abspath(file)  # the trainer may change its directory
    except OSError:  # which may be gone
        return os.fspath(file)


def _clipped(facts: Facts) -> Facts:
    """The same facts, with texts of a bounded length."""
    clipped = facts.copy()
    if (sample := facts.get("sample")) is not None:
        clipped["sample"] = _clip(sample, MOST_CHARACTERS)
    if (exception := facts.get("exception")) is not None:
        clipped["exception"] = _clip(exception, MOST_OF_EXCEPTION)
    if (stack := facts.get("stack")) is not None:
        clipped["stack"] = _clip(stack, MOST_OF_STACK)
    return clipped


def _one_line(text: str) -> str:
    return _clip(" ".join(text.split()), MOST_CHARACTERS)


def _clip(text: str, most: int) -> str:
    """The beginning and the end of a text that is too long: both tell something."""
    if len(text) <= most:
        return text
    half = (most - 3) // 2
    return f"{text[:half]} … {text[-half:]}"
