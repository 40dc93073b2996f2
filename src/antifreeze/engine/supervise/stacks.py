"""What Python's faulthandler writes → stacks: threads, their frames, and which of them are the user's. Pure.

Text of a process that was killed while it wrote is understood as far as it goes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

_OURS = str(PurePath(__file__).parents[2]) + "/"
_FATAL = "Fatal Python error: "
_THREAD = re.compile(r"(Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
_ONLY_THREAD = "Stack (most recent call first):"
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.+)')
_BINARY = re.compile(r'  Binary file "(.*)",? at .*')  # from Python 3.14 on
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/([^/]+)")
# Of Python itself, and of torch where it was built from source and is in no such folder.
_LIBRARY = re.compile(r".*/lib(64)?/python3[^/]*/|.*/torch/(_[a-z]|autograd|functional|multiprocessing|nn|utils/data)")
# Code without a file that a person wrote; any other was made by a library.
_TYPED_IN = ("<string>", "<stdin>", "<ipython-input")


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in Python code."""

    file: str
    line: int
    """0: Python could not tell."""
    function: str

    @property
    def is_user_code(self) -> bool:
        """Whether this is the user's own code, not Python's, a package's or ours."""
        if self.file.startswith("<"):
            return self.file.startswith(_TYPED_IN)
        return not (self.file.startswith(_OURS) or _PACKAGES.match(self.file) or _LIBRARY.match(self.file))

    @property
    def package(self) -> str | None:
        """The installed package that this code belongs to."""
        return _package_of(self.file)

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Thread:
    """What one thread was at."""

    ident: str
    name: str | None
    is_current: bool
    """Whether it is the thread that crashed, or that heard the question."""
    frames: tuple[Frame, ...]
    """The innermost first."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What all threads of a process were at."""

    fatal: str | None
    """What ended the process, in Python's words ("Segmentation fault"); None: it was only asked."""
    threads: tuple[Thread, ...]
    binaries: tuple[str, ...] = ()
    """The native libraries on the stack of the current thread, the innermost first, where Python tells."""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Those of the thread that matters: the current one, else the last, which is the main thread."""
        ordered = sorted(self.threads, key=lambda thread: thread.is_current)
        return ordered[-1].frames if ordered else ()


def parse(text: str) -> list[Stack]:
    """All stacks in this text, in the order in which they were written."""
    stacks: list[_Draft] = []
    for line in text.splitlines():
        if line.startswith(_FATAL):
            stacks.append(_Draft(line.removeprefix(_FATAL)))
        elif (thread := _THREAD.fullmatch(line)) or line == _ONLY_THREAD:
            ident, name = (thread[2], thread[3]) if thread else ("", None)
            if not stacks or stacks[-1].has(ident):
                stacks.append(_Draft(None))
            stacks[-1].begin(ident, name, is_current=not thread or thread[1] == "Current thread")
        elif stacks:
            stacks[-1].add(line)
    return [draft.finish() for draft in stacks]


def most_telling(stack: Stack) -> Frame | None:
    """The innermost frame of the user's own code."""
    return next((frame for frame in stack.frames if frame.is_user_code), None)


def native_package(stack: Stack) -> str | None:
    """The package whose native code was entered, as far as can be told."""
    packages = (_package_of(binary) for binary in stack.binaries)
    from_binaries = next((package for package in packages if package is not None), None)
    if from_binaries is not None or not stack.frames:
        return from_binaries
    return stack.frames[0].package


class _Draft:
    """A stack that is being read."""

    def __init__(self, fatal: str | None) -> None:
        self._fatal = fatal
        self._threads: list[tuple[str, str | None, bool, list[Frame]]] = []
        self._binaries: list[str] = []

    def has(self, ident: str) -> bool:
        return any(thread[0] == ident for thread in self._threads)

    def begin(self, ident: str, name: str | None, *, is_current: bool) -> None:
        self._threads.append((ident, name, is_current, []))

    def add(self, line: str) -> None:
        if (frame := _FRAME.fullmatch(line)) and self._threads:
            number = 0 if frame[2] == "???" else int(frame[2])
            self._threads[-1][3].append(Frame(_unescaped(frame[1]), number, _unescaped(frame[3])))
        elif binary := _BINARY.fullmatch(line):
            self._binaries.append(binary[1])

    def finish(self) -> Stack:
        threads = [Thread(ident, name, current, tuple(frames)) for ident, name, current, frames in self._threads]
        return Stack(self._fatal, tuple(threads), tuple(self._binaries))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1] or found[2] or found[3], 16)), text)


def _package_of(file: str) -> str | None:
    found = _PACKAGES.match(file)
    # `numpy.libs` holds the libraries that the wheel of numpy brings along.
    return re.sub(r"(\.libs|\.py|\.[^/]*\.so)$", "", found[1]) if found else None
