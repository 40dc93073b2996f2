"""What user code raised in a worker → the exception to raise in the trainer: its type, with torch's text.

torch sends the type and the text, and calls the type with the text. That works for most types; for the others torch raises
a RuntimeError, or whatever the constructor says about its arguments. Ours keeps the type wherever it can: `except MyError`
shall work.
"""

from __future__ import annotations

from torch._utils import ExceptionWrapper

from antifreeze.engine.crossing import results
from antifreeze.errors import SampleFailed


def load_error(raw: bytes, find: results.Find) -> Exception:
    """The exception in these bytes; one that says so if it cannot be had."""
    try:
        error: Exception | ExceptionWrapper = results.load(raw, find)
    except Exception as why:  # of a user's exception class: whatever it does when it is rebuilt
        return SampleFailed("a worker raised an exception that could not be rebuilt here", why=repr(why))
    return unwrap(error) if isinstance(error, ExceptionWrapper) else error


def unwrap(wrapper: ExceptionWrapper) -> Exception:
    """The exception that torch would raise, or one of the type that it should have been."""
    kind: type[Exception] = wrapper.exc_type
    try:
        wrapper.reraise()
    except Exception as error:  # this is what it is for
        if isinstance(error, kind):
            return error.with_traceback(None)
    return _without_constructor(wrapper)


def _without_constructor(wrapper: ExceptionWrapper) -> Exception:
    kind: type[Exception] = wrapper.exc_type
    text = f"Caught {kind.__name__} {wrapper.where}.\nOriginal {wrapper.exc_msg}"
    try:
        if issubclass(kind, ExceptionGroup):
            return kind(text, [RuntimeError("the exceptions of the group are in the text of the group")])
        error: Exception = kind.__new__(kind, text)
        error.args = (text,)
        if str(error) == text:
            return error
    except Exception:  # noqa: S110 - a class can do anything; its text is what matters
        pass
    return RuntimeError(text)
