"""What user code raised in a worker → the exception to raise in the trainer: the exception itself, with torch's text.

torch sends the type and the text, and calls the type with the text. That works for most types; for the others torch raises
a RuntimeError, or whatever the constructor says about its arguments. All that the exception held is lost. Ours keeps the
type wherever it can, for `except MyError`; the attributes, notes, cause and context of the exception (`error.index`); and
the exceptions of a group, for `except*`. `str()` and `args` are torch's: the text with the traceback of the worker.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from antifreeze.engine.crossing import results
from antifreeze.engine.showing import add_note, show
from antifreeze.errors import SampleFailed
from antifreeze.torch_side.workers import ExceptionWrapper

# Of exceptions that are chained to, or inside, one another; what is beyond is in the text.
DEEPEST = 16
# What an exception holds is sent up to this size: one that holds its dataset must not send it.
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """An exception, one inside a group, or one that it is chained to."""

    whole: bytes | None
    """The exception as it is; None if it cannot be pickled."""
    kind: bytes | None
    """Its type; None if that cannot be pickled either."""
    text: str
    attributes: Mapping[str, bytes]
    """What it holds, by name, as far as it can be pickled."""
    parts: tuple[Part, ...]
    """Its own exceptions, if it is a group."""
    cause: Part | None
    context: Part | None
    hides_context: bool


class RaisedWhole(ExceptionWrapper):
    """An exception as torch wraps it, and all of it that can be sent."""

    def __init__(self, error: BaseException, *, where: str) -> None:
        super().__init__((type(error), error, error.__traceback__), where=where)  # type: ignore[no-untyped-call]
        self.part = _part(error, DEEPEST + 1)


def wrap(*, where: str) -> ExceptionWrapper:
    """The exception that is being handled, so that it can be sent; `where` is told in its text."""
    error = sys.exception()
    assert error is not None
    return RaisedWhole(error, where=where)


def load_error(raw: bytes, find: results.Find) -> Exception:
    """The exception in these bytes; one that says so if it cannot be had."""
    try:
        error: Exception | ExceptionWrapper = results.load(raw, find)
    except Exception as why:  # of a user's exception class: whatever it does when it is rebuilt
        return SampleFailed("a worker raised an exception that could not be rebuilt here", why=show(why))
    if not isinstance(error, ExceptionWrapper):
        return error
    try:
        return unwrap(error, find)
    except Exception:  # likewise: what was raised is to be told in any case
        return RuntimeError(_text(error))


def unwrap(wrapper: ExceptionWrapper, find: results.Find) -> Exception:
    """The exception that was wrapped, with torch's text."""
    if not isinstance(wrapper, RaisedWhole):
        return _as_torch(wrapper) or RuntimeError(_text(wrapper))
    part, text = wrapper.part, _text(wrapper)
    if part.parts:
        error: Exception = _group(wrapper.exc_type, text, [_rebuild(each, find) for each in part.parts])
    else:
        error = _as_torch(wrapper) or _whole(part, find) or RuntimeError(text)
    _complete(error, part, find)
    if text not in _text_of(error):  # its class makes its own text of its attributes
        add_note(error, text)
    return error


def _as_torch(wrapper: ExceptionWrapper) -> Exception | None:
    """The exception that torch would raise, or one of the type that it should have been; None if none can be made."""
    kind: type[Exception] = wrapper.exc_type
    try:
        wrapper.reraise()
    except Exception as error:  # this is what it is for
        if isinstance(error, kind):
            return BaseException.with_traceback(error, None)
    return _without_constructor(kind, _text(wrapper))


def _text(wrapper: ExceptionWrapper) -> str:
    return f"Caught {wrapper.exc_type.__name__} {wrapper.where}.\nOriginal {wrapper.exc_msg}"


def _without_constructor(kind: type[Exception], text: str) -> Exception | None:
    try:
        error: Exception = kind.__new__(kind, text)
        object.__setattr__(error, "args", (text,))
        if str(error) == text:
            return error
    except Exception:  # noqa: S110 - a class can do anything; its text is what matters
        pass
    return None


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # of a class of the user's
        return ""


# --- what is sent


def _part(error: BaseException, deepest: int) -> Part:
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return Part(
        whole=None if inside else _dump(error),
        kind=_dump(type(error)),
        text=error.message if isinstance(error, BaseExceptionGroup) else _described(error),
        attributes={name: raw for name, value in _held(error) if (raw := _dump(value)) is not None},
        parts=tuple(_part(each, deepest - 1) for each in inside) if deepest else (),
        cause=_chained(error.__cause__, deepest),
        context=None if error.__suppress_context__ else _chained(error.__context__, deepest),
        hides_context=error.__suppress_context__,
    )


def _held(error: BaseException) -> Iterator[tuple[str, Any]]:
    """The attributes of an exception: its own, those in slots, and those of Python's classes, such as `errno`."""
    for name in _members(type(error)):
        with contextlib.suppress(Exception):  # not set, or a class of the user's that does not show it
            value = getattr(error, name)
            if value is not None:
                yield name, value
    with contextlib.suppress(Exception):  # likewise
        yield from list(vars(error).items())


def _members(kind: type) -> Iterator[str]:
    """Names of attributes that are not in `__dict__`."""
    for each in kind.__mro__:
        if each in (BaseException, object):
            continue
        for name, member in vars(each).items():
            # The object without an attribute (`AttributeError.obj`) can be anything: the dataset, for one.
            if type(member).__name__ in ("member_descriptor", "getset_descriptor") and name not in ("__dict__", "obj"):
                yield name


def _chained(error: BaseException | None, deepest: int) -> Part | None:
    return _part(error, deepest - 1) if error is not None and deepest else None


def _described(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _dump(thing: Any) -> bytes | None:
    try:
        return results.dump_small(thing, most_bytes=MOST_BYTES)
    except Exception:  # a user's exception may hold anything; its text travels
        return None


# --- what arrives


def _complete(error: Exception, part: Part, find: results.Find) -> None:
    """Give an exception the attributes of the one that was raised, and what that was chained to."""
    for name, raw in part.attributes.items():
        value = _load(raw, find)
        if value is not None:
            _give(error, name, value)
    _set(error, "__cause__", _rebuild(part.cause, find) if part.cause else None)
    _set(error, "__context__", _rebuild(part.context, find) if part.context else None)
    _set(error, "__suppress_context__", part.hides_context)


def _set(error: Exception, name: str, value: Any) -> None:
    """Past whatever its class does about attributes that are set: those of a frozen dataclass cannot be."""
    with contextlib.suppress(Exception):  # a class of the user's can do anything
        object.__setattr__(error, name, value)


def _give(error: Exception, name: str, value: Any) -> None:
    if name in _members(type(error)):
        _give_member(error, name, value)
    else:
        with contextlib.suppress(Exception):  # a class of the user's that does not show its own
            vars(error)[name] = value  # past whatever the class does about attributes that are set


def _give_member(error: Exception, name: str, value: Any) -> None:
    """Set an attribute that is not in `__dict__`, unless Python makes the text of it, as of an OSError's `filename`."""
    with contextlib.suppress(Exception):  # one that cannot be set
        text, before = _text_of(error), getattr(error, name, None)
        object.__setattr__(error, name, value)
        if _text_of(error) == text:
            return
        if before is not None:
            object.__setattr__(error, name, before)
        else:
            object.__delattr__(error, name)  # None would be taken for a value


def _whole(part: Part, find: results.Find) -> Exception | None:
    whole = _load(part.whole, find)
    return whole if isinstance(whole, Exception) else None


def _rebuild(part: Part, find: results.Find) -> Exception:
    """An exception inside a group, or in a chain: as it was, or else of its type, with its text."""
    kind = _load(part.kind, find)
    if part.parts:
        error: Exception = _group(kind, part.text, [_rebuild(each, find) for each in part.parts])
    else:
        is_kind = isinstance(kind, type) and issubclass(kind, Exception)
        made = _whole(part, find) or _without_constructor(kind if is_kind else RuntimeError, part.text)
        error = made or RuntimeError(part.text)
    _complete(error, part, find)
    return error


def _load(raw: bytes | None, find: results.Find) -> Any:
    try:
        return None if raw is None else results.load(raw, find)
    except Exception:  # whatever a class of the user's does when it is rebuilt; there is more to try
        return None


def _group(kind: Any, text: str, inside: Sequence[Exception]) -> ExceptionGroup[Any]:
    try:
        group = kind(text, inside)
        if isinstance(group, ExceptionGroup):
            return group
    except Exception:  # noqa: S110 - a class of the user's can have a constructor of any kind
        pass
    return ExceptionGroup(text, inside)
