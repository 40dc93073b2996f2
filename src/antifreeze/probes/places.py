"""Files and lines, as facts name them: relative to the directory of the script; and whose code they are."""

from __future__ import annotations

import linecache
import os
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from traceback import extract_tb

from antifreeze.doctor.facts import Place
from antifreeze.engine.supervise.stacks import Frame

MOST_FRAMES = 12
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def is_ours(file: str) -> bool:
    return file.startswith(_OURS + os.sep)


def is_users(file: str) -> bool:
    """Whether code is the user's: neither Python's, nor installed, nor ours. All probes ask this, or the frame itself."""
    return Frame(file, 0, "").is_user_code


@dataclass(frozen=True, slots=True)
class PlaceMaker:
    """Makes places of the lines of one program."""

    base: str
    """The directory of its script."""
    cwd: str
    """Where it was started: file names in its code may be relative to that."""

    def place(self, file: str, line: int, function: str = "") -> Place:
        full = self.full(file)
        text = linecache.getline(full, line).strip()
        shown = os.path.relpath(full, self.base) if full.startswith(self.base + os.sep) else file
        return Place(shown, line, function, text)

    def full(self, file: str) -> str:
        return file if file.startswith("<") else os.path.normpath(os.path.join(self.cwd, file))

    def is_users(self, file: str) -> bool:
        """As above, and a file at all: compiled code names files that are not here."""
        full = self.full(file)
        return is_users(full) and os.path.exists(full)

    def of_traceback(self, trace: types.TracebackType | None) -> tuple[tuple[Place, ...], Place | None]:
        """The frames of a traceback, the innermost first and ours left out, and the innermost line of the user's."""
        frames = reversed(extract_tb(trace))
        return self.of_frames(Frame(each.filename, each.lineno or 0, each.name) for each in frames)

    def of_caller(self, depth: int = 1) -> tuple[tuple[Place, ...], Place | None]:
        """The same, of the stack that calls this function."""
        frame: types.FrameType | None = sys._getframe(depth)
        found = []
        while frame is not None:
            found.append(Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return self.of_frames(found)

    def of_frames(self, frames: Iterable[Frame]) -> tuple[tuple[Place, ...], Place | None]:
        known = [each for each in frames if not is_ours(self.full(each.file))]
        users = next((each for each in known if self.is_users(each.file)), None)
        told = known[:MOST_FRAMES]
        if users is not None and users not in told:
            told = [*told[:-1], users]
        places = tuple(self.place(each.file, each.line, each.function) for each in told)
        return places, None if users is None else self.place(users.file, users.line, users.function)
