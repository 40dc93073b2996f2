"""What user code raised in a worker → the exception to raise in the trainer: its type, with torch's text.

torch sends the type and the text, and calls the type with the text. That works for most types; for the others torch raises
a RuntimeError, or whatever the constructor says about its arguments. Ours keeps the type wherever it can: `except MyError`
shall work. The exceptions of a group travel beside its text, each on its own, so that `except*` works, too.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch._utils import ExceptionWrapper

from antifreeze.engine.crossing import results
from antifreeze.errors import SampleFailed

# Of exceptions that are chained to, or inside, one another; what is beyond is in the text.
DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Part:
    """An exception inside a group, or one that it is chained to."""

    whole: bytes | None
    """The exception as it is; None if it cannot be pickled."""
    kind: bytes | None
    """Its type; None if that cannot be pickled either."""
    text: str
    parts: tuple[Part, ...]
    """Its own exceptions, if it is a group."""
    cause: Part | None
    context: Part | None
    hides_context: bool


class RaisedGroup(ExceptionWrapper):
    """An ExceptionGroup, as torch wraps exceptions, with the exceptions in it."""

    def __init__(self, group: BaseExceptionGroup[Any], *, where: str) -> None:
        super().__init__((type(group), group, group.__traceback__), where=where)  # type: ignore[no-untyped-call]
        self.parts = [_part(each, DEEPEST) for each in group.exceptions]


def wrap(*, where: str) -> ExceptionWrapper:
    """The exception that is being handled, so that it can be sent; `where` is told in its text."""
    error = sys.exception()
    return RaisedGroup(error, where=where) if isinstance(error, BaseExceptionGroup) else ExceptionWrapper(where=where)


def load_error(raw: bytes, find: results.Find) -> Exception:
    """The exception in these bytes; one that says so if it cannot be had."""
    try:
        error: Exception | ExceptionWrapper = results.load(raw, find)
    except Exception as why:  # of a user's exception class: whatever it does when it is rebuilt
        return SampleFailed("a worker raised an exception that could not be rebuilt here", why=repr(why))
    return unwrap(error, find) if isinstance(error, ExceptionWrapper) else error


def unwrap(wrapper: ExceptionWrapper, find: results.Find) -> Exception:
    """The exception that was wrapped, with torch's text."""
    if isinstance(wrapper, RaisedGroup):
        return _group(wrapper.exc_type, _text(wrapper), [_rebuild(part, find) for part in wrapper.parts])
    return _unwrap_one(wrapper)


def _unwrap_one(wrapper: ExceptionWrapper) -> Exception:
    """The exception that torch would raise, or one of the type that it should have been."""
    kind: type[Exception] = wrapper.exc_type
    try:
        wrapper.reraise()
    except Exception as error:  # this is what it is for
        if isinstance(error, kind):
            return error.with_traceback(None)
    return _without_constructor(kind, _text(wrapper))


def _text(wrapper: ExceptionWrapper) -> str:
    return f"Caught {wrapper.exc_type.__name__} {wrapper.where}.\nOriginal {wrapper.exc_msg}"


def _without_constructor(kind: type[Exception], text: str) -> Exception:
    try:
        error: Exception = kind.__new__(kind, text)
        error.args = (text,)
        if str(error) == text:
            return error
    except Exception:  # noqa: S110 - a class can do anything; its text is what matters
        pass
    return RuntimeError(text)


# --- groups


def _part(error: BaseException, deepest: int) -> Part:
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return Part(
        whole=None if inside else _dump(error),
        kind=_dump(type(error)),
        text=error.message if isinstance(error, BaseExceptionGroup) else _described(error),
        parts=tuple(_part(each, deepest - 1) for each in inside) if deepest else (),
        cause=_chained(error.__cause__, deepest),
        context=None if error.__suppress_context__ else _chained(error.__context__, deepest),
        hides_context=error.__suppress_context__,
    )


def _chained(error: BaseException | None, deepest: int) -> Part | None:
    return _part(error, deepest - 1) if error is not None and deepest else None


def _described(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _dump(thing: Any) -> bytes | None:
    try:
        return results.dump(thing)
    except Exception:  # a user's exception may hold anything; its text travels
        return None


def _rebuild(part: Part, find: results.Find) -> Exception:
    whole, kind = _load(part.whole, find), _load(part.kind, find)
    if part.parts:
        error: Exception = _group(kind, part.text, [_rebuild(each, find) for each in part.parts])
    elif isinstance(whole, Exception):
        error = whole
    else:
        is_kind = isinstance(kind, type) and issubclass(kind, Exception)
        error = _without_constructor(kind if is_kind else RuntimeError, part.text)
    error.__cause__ = _rebuild(part.cause, find) if part.cause else None
    error.__context__ = _rebuild(part.context, find) if part.context else None
    error.__suppress_context__ = part.hides_context
    return error


def _load(raw: bytes | None, find: results.Find) -> Any:
    try:
        return None if raw is None else results.load(raw, find)
    except Exception:  # whatever a user's exception does when it is rebuilt; there is more to try
        return None


def _group(kind: Any, text: str, inside: Sequence[Exception]) -> ExceptionGroup[Any]:
    try:
        group = kind(text, inside)
        if isinstance(group, ExceptionGroup):
            return group
    except Exception:  # noqa: S110 - a class of the user's can have a constructor of any kind
        pass
    return ExceptionGroup(text, inside)
