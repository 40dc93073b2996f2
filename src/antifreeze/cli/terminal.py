"""What is printed where: colours, widths, and a line that shows progress and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import TextIO

# Back to the first column, and all that stands to the right of it is gone.
ERASE = "\r\x1b[K"
PLAIN_WIDTH = 100


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or can_redraw(stream, environ)


def can_redraw(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether it is a terminal that can do more than print."""
    return stream.isatty() and environ.get("TERM") != "dumb"


def width_of(stream: TextIO) -> int | None:
    """Columns of a terminal; None: lines may be as long as they are."""
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if stream.isatty() else None


def put(text: str, *, to: TextIO) -> None:
    """Print it, also where the encoding lacks some of its characters."""
    encoding = to.encoding or "utf-8"
    to.write(f"{text}\n".encode(encoding, "backslashreplace").decode(encoding))
    to.flush()


class Progress:
    """One line on a terminal, drawn again and again; elsewhere nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream if can_redraw(stream) else None

    def show(self, text: str) -> None:
        if self._stream is not None:
            columns = shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns
            line = text if len(text) < columns else f"{text[: columns - 2]}…"
            self._write(f"{ERASE}{line}")

    def clear(self) -> None:
        if self._stream is not None:
            self._write(ERASE)

    def _write(self, text: str) -> None:
        assert self._stream is not None
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()


@contextlib.contextmanager
def progress_on(stream: TextIO) -> Iterator[Progress]:
    """The line is gone when the work is done, or was interrupted."""
    progress = Progress(stream)
    try:
        yield progress
    finally:
        progress.clear()
