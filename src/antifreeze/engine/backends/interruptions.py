"""When the program's signal handlers run: never in the middle of something of ours that has to be whole.

Python runs a handler between any two steps of the main thread, and a handler may raise: Ctrl-C's does, an alarm's often
does. Between a fork and the place where the child's number is written down, that would lose a process, and no `try`
closes the gap. So handlers are *held* while we make or end processes and descriptors; they run as soon as we are done,
or earlier, where we wait or call code of others and have taken precautions (`let_through`).

How: a function of ours stands in for every handler, and either calls it or notes that it is due. As all that a handler
raises passes through it, we know what came from a handler and what is a fault of ours: nothing has to be guessed from
types or tracebacks. Only Python's own table changes. What the kernel knows (flags such as SA_RESTART, or a function that
a C library has put there since) is put back as it was. A stand-in that is left behind, because a handler raised while it
was being replaced or because the program has kept it, passes everything on, until the next time puts it right.

In other threads there is nothing to hold, for Python runs handlers in the main thread alone.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import inspect
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from antifreeze.engine import forks

T = TypeVar("T")
Handler = Callable[[int, FrameType | None], Any]

# More than any C library's `struct sigaction`: it is only kept and put back.
_ACTION_BYTES = 512
_OURS = str(Path(__file__).resolve().parents[2])
# Whose classes of exceptions our code meets, beside those of Python's own library.
_OF_OURS = ("antifreeze", "cloudpickle", "numpy", "torch")


class _Mode(enum.Enum):
    OFF = enum.auto()
    """A stand-in, if one is left, passes everything on."""
    HELD = enum.auto()
    OPEN = enum.auto()
    """Let through for a while."""
    OPEN_TO_OTHERS = enum.auto()
    """Let through for a while, except where code of ours is interrupted."""


_mode = _Mode.OFF
_handlers: dict[int, Handler] = {}
"""What we stand in for; never forgotten, for a stand-in may be left behind."""
_due: dict[int, FrameType | None] = {}
_raised: list[BaseException] = []


class held:  # noqa: N801 - reads as what it does: `with held():`
    """While this lasts, no signal handler runs, except within `let_through`; those that are due run at its end."""

    _before: _Mode | None = None

    def __enter__(self) -> None:
        global _mode
        if not _is_main_thread():
            return
        if _mode is _Mode.OFF:
            forks.call_in_children(_forget_in_child)
            try:
                _step_in()
            except BaseException:
                _step_aside()
                raise
        # From here to the end nothing is called: nothing can come in between.
        self._before = _mode
        _mode = _Mode.HELD

    def __exit__(self, *_: object) -> None:
        global _mode
        if self._before is None:
            return
        _mode = self._before
        if _mode is _Mode.HELD:
            return
        try:
            _run_due()
        finally:
            if _mode is _Mode.OFF:
                del _raised[:]
                _step_aside()


def let_through(action: Callable[[], T]) -> T:
    """Do this with signal handlers let through, also where they are held; what it returns may get lost then."""
    if _mode is not _Mode.HELD or not _is_main_thread():
        return action()
    return _in_mode(_Mode.OPEN, action)


def let_through_others(action: Callable[[], T]) -> T:
    """Do this with signal handlers let through wherever they interrupt code that is not ours."""
    if _mode is not _Mode.HELD or not _is_main_thread():
        return action()
    return _in_mode(_Mode.OPEN_TO_OTHERS, action)


def behind(error: BaseException) -> BaseException | None:
    """The exception of a signal handler that this is, or that it came in the wake of; to be asked while held."""
    seen: list[BaseException] = []
    ahead: list[BaseException | None] = [error]
    while ahead:
        one = ahead.pop()
        if one is None or any(one is other for other in seen):
            continue
        if any(one is other for other in _raised):
            return one
        seen.append(one)
        ahead += [one.__context__, one.__cause__]
    return None


def is_of_a_handler(error: BaseException) -> bool:
    """Whether a signal handler raised this; where handlers are not held, its traceback tells.

    Python calls a handler from the step that it interrupts, and gives it the frame of that step: what it raises has
    passed through a frame that was given the one before it. The handler need be no function (a `functools.partial`, an
    object that can be called), and may have been replaced by itself before it raised.
    """
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in (_stand_in, *handlers, *_handlers.values())} - {None}
    interrupted: FrameType | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code in codes or (interrupted is not None and _was_given(frame, interrupted)):
            return True
        interrupted = frame
    return False


def _was_given(frame: FrameType, wanted: FrameType) -> bool:
    """Whether this call has the other frame among its arguments."""
    code = frame.f_code
    has_others = bool(code.co_flags & inspect.CO_VARARGS)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + has_others]
    given = [frame.f_locals.get(name) for name in names]
    others = given.pop() if has_others else ()
    return any(each is wanted for each in (*given, *(others if isinstance(others, tuple) else ())))


def is_from_outside(error: BaseException) -> bool:
    """Whether neither our code nor what it calls can have raised this: it was thrown into a thread that was in there.

    A signal handler throws, and so does another thread that means to end this one (`PyThreadState_SetAsyncExc`), and a
    debugger. The first is known by its frame. Of the others the class tells: all that can go wrong in our code is a class
    of Python's, of torch's or of ours.
    """
    where = type(error).__module__.partition(".")[0]
    return is_of_a_handler(error) or where == "bdb" or not (where in _OF_OURS or where in sys.stdlib_module_names)


def _in_mode(mode: _Mode, action: Callable[[], T]) -> T:
    global _mode
    _mode = mode
    try:
        if mode is _Mode.OPEN:
            _run_due()
        return action()
    finally:  # this calls nothing, so nothing can come in before it
        _mode = _Mode.HELD


def _stand_in(number: int, frame: FrameType | None) -> None:
    if _mode is _Mode.HELD or (_mode is _Mode.OPEN_TO_OTHERS and _is_ours(frame)):
        _due[number] = frame
        return
    try:
        _handlers[number](number, frame)
    except BaseException as error:
        if _mode is not _Mode.OFF:
            _raised.append(error)
        raise


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_OURS)


def _run_due() -> None:
    if _due:
        number, frame = _due.popitem()
        try:
            _stand_in(number, frame)
        finally:  # one that raises does not keep the others from running, as in Python itself
            _run_due()


def _step_in() -> None:
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and handler is not _stand_in:
            _handlers[number] = handler
            _put(number, _stand_in)


def _step_aside() -> None:
    for number, handler in list(_handlers.items()):
        if signal.getsignal(number) is _stand_in:  # else the program has put another one there
            _put(number, handler)


def _put(number: int, handler: Handler) -> None:
    """Change what Python does about a signal, and not what the kernel does."""
    known_to_the_kernel = ctypes.create_string_buffer(_ACTION_BYTES)
    _sigaction()(number, None, known_to_the_kernel)
    try:
        signal.signal(number, handler)
    finally:
        _sigaction()(number, known_to_the_kernel, None)


@functools.cache
def _sigaction() -> Any:
    return ctypes.PyDLL(None).sigaction


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _forget_in_child() -> None:
    # What a child does about signals is what the program has said, not what its parent was at when it forked.
    global _mode
    _mode = _Mode.OFF
    _due.clear()
    _raised.clear()
    _step_aside()
