"""Every exception of antifreeze, split by who has to act.

::

    AntifreezeError
    ├── ConfigError     (ValueError)    you: a setting cannot work; raised as early as it can be known
    ├── CheckpointError (ValueError)    you: a state_dict belongs to another dataset, sampler or loader, or is broken
    ├── CannotCross     (TypeError)     you: an object cannot be sent to or from a worker; names its path
    ├── SampleFailed    (RuntimeError)  you: dataset code raised, and the exception itself could not travel
    ├── WorkerLost      (RuntimeError)  you or the machine
    │   ├── WorkerCrashed                 ended by itself: exit code, or a signal of its own making
    │   ├── WorkerKilled                  ended by the kernel or by somebody
    │   └── WorkerFrozen                  no progress past its limit: Python stack
    ├── ArenaError      (RuntimeError)  the machine: shared memory cannot be had
    ├── Fallback        (RuntimeError)  `ANTIFREEZE=require` and a loader that our engine does not carry
    └── InternalError   (RuntimeError)  us: a broken invariant

Each class also inherits the builtin that torch raises in that place, so that existing `except` clauses keep working.
Every message answers, in this order: what happened, where, why (only with evidence), what to try.
A problem that has a name has a code as well: it stands before the reason, and is an attribute.
"""

from __future__ import annotations

from typing import Any

from antifreeze.codes import named


class AntifreezeError(Exception):
    """Base of all errors of antifreeze; the parts of the message are attributes, so that nobody parses text."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        why: str | None = None,
        try_: str | None = None,
        code: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.why = why
        self.try_ = try_
        self.code = code
        super().__init__(self._text())

    def _text(self) -> str:
        why = ": ".join(part for part in (self.code and named(self.code), self.why) if part)
        parts = (("where", self.where), ("why", why), ("try", self.try_))
        return "\n".join([self.what, *(f"  {name:<5}  {text}" for name, text in parts if text)])

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.__dict__))


def _rebuild(cls: type[AntifreezeError], what: str, attributes: dict[str, Any]) -> AntifreezeError:
    error = cls.__new__(cls)
    AntifreezeError.__init__(error, what, **{name: attributes[name] for name in ("where", "why", "try_", "code")})
    error.__dict__.update(attributes)
    return error


class ConfigError(AntifreezeError, ValueError):
    """A setting cannot work."""


class CheckpointError(AntifreezeError, ValueError):
    """A state_dict does not belong to this loader, or is no state_dict of ours."""


class CannotCross(AntifreezeError, TypeError):
    """An object cannot be sent to a worker, or from a worker back."""


class SampleFailed(AntifreezeError, RuntimeError):
    """Dataset code raised an exception that could not travel; its text is kept."""


class WorkerLost(AntifreezeError, RuntimeError):
    """A worker ended before its work was done."""

    worker: int
    pid: int
    exitcode: int | None
    """As `multiprocessing.Process.exitcode`: negative for a signal, None when nobody could tell."""
    batch: int | None
    """Number of the batch it was working on, counted from 0 in this epoch."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        why: str | None = None,
        try_: str | None = None,
        code: str | None = None,
        worker: int = -1,
        pid: int = -1,
        exitcode: int | None = None,
        batch: int | None = None,
    ) -> None:
        super().__init__(what, where=where, why=why, try_=try_, code=code)
        self.worker = worker
        self.pid = pid
        self.exitcode = exitcode
        self.batch = batch


class WorkerCrashed(WorkerLost):
    """A worker ended by itself: an exit code, or a signal that its own code caused."""


class WorkerKilled(WorkerLost):
    """A worker was ended by the kernel or by somebody."""


class WorkerFrozen(WorkerLost):
    """A worker made no progress for longer than any sample may take."""


class ArenaError(AntifreezeError, RuntimeError):
    """Shared memory or descriptors for batches cannot be had."""


class Fallback(AntifreezeError, RuntimeError):
    """`ANTIFREEZE=require` forbids torch's own iterator, and this loader would have needed it."""


class InternalError(AntifreezeError, RuntimeError):
    """A broken invariant of antifreeze itself: please report it."""
