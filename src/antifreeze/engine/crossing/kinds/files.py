"""Files open for reading: raw, buffered and text. The copy stands where the handle stands, with an offset of its own."""

from __future__ import annotations

import gc
import io
import os
import stat
import sys
from typing import Any

from antifreeze.engine.crossing.kinds.base import (
    FORK,
    Kind,
    Luggage,
    OnlyInherited,
    Reduced,
    SentFile,
    fresh,
    refuse_writing,
    with_attributes,
)
from antifreeze.errors import CannotCross

_STANDARD = ("stdin", "stdout", "stderr")


def plan_raw(handle: io.FileIO, luggage: Luggage) -> Reduced:
    """A descriptor and a position."""
    if handle.closed:
        return open_closed, (type(handle), handle.name)
    return with_attributes(handle, open_raw, type(handle), pack(handle, luggage), handle.name, handle.tell())


def open_raw(cls: type[io.FileIO], sent: SentFile, name: Any, position: int) -> io.FileIO:
    """The other side of `plan_raw`."""
    handle: io.FileIO = fresh(cls)
    io.FileIO.__init__(handle, sent.open(), "rb")
    if not isinstance(name, int):  # else it was the number of a descriptor, which is another one here
        handle.name = name
    handle.seek(position)
    return handle


def plan_buffered(handle: io.BufferedReader, luggage: Luggage) -> Reduced:
    """The raw file below it, and a position; what has been read ahead is read again."""
    if handle.closed:
        return open_closed, (type(handle), name_of(handle))
    return with_attributes(handle, open_buffered, type(handle), handle.raw, _position(handle))


def open_buffered(cls: type[io.BufferedReader], raw: Any, position: int) -> io.BufferedReader:
    """The other side of `plan_buffered`."""
    handle: io.BufferedReader = fresh(cls)
    io.BufferedReader.__init__(handle, raw)
    handle.seek(position)
    return handle


def plan_writer(handle: Any, luggage: Luggage) -> Reduced:
    """Refused, unless it is closed."""
    if handle.closed:
        return open_closed, (io.BufferedReader, name_of(handle))
    raise refuse_writing(f"the file {name_of(handle)!r}", str(handle.mode))


def plan_text(handle: io.TextIOWrapper, luggage: Luggage) -> Reduced:
    """The buffer below it, how it is decoded, and a position."""
    for name in _STANDARD:
        if handle is getattr(sys, name):
            return getattr, (sys, name)
    if handle.closed:
        return open_closed, (type(handle), name_of(handle))
    if handle.writable():
        raise refuse_writing(f"the file {name_of(handle)!r}", str(getattr(handle, "mode", "w")))
    position = _position(handle)
    decoding = handle.encoding, handle.errors, _newline(handle, position)
    return with_attributes(handle, open_text, type(handle), handle.buffer, decoding, position)


def open_text(
    cls: type[io.TextIOWrapper], buffer: Any, decoding: tuple[str, str | None, str | None], position: int
) -> io.TextIOWrapper:
    """The other side of `plan_text`."""
    handle: io.TextIOWrapper = fresh(cls)
    io.TextIOWrapper.__init__(handle, buffer, *decoding)
    handle.seek(position)
    return handle


def open_closed(cls: type[Any], name: Any) -> Any:
    """What is closed arrives closed."""
    handle = fresh(cls)
    raw = handle if issubclass(cls, io.FileIO) else io.FileIO.__new__(io.FileIO)
    io.FileIO.__init__(raw, os.devnull)
    raw.name = name
    if issubclass(cls, io.BufferedReader):
        io.BufferedReader.__init__(handle, raw)
    elif issubclass(cls, io.TextIOWrapper):
        io.TextIOWrapper.__init__(handle, io.BufferedReader(raw))
    handle.close()
    return handle


def _position(handle: Any) -> int:
    if not handle.seekable():
        return 0  # and the plan of what is below it says that it cannot be had
    try:
        return int(handle.tell())
    except OSError as error:  # between two lines of a loop over the file, Python itself does not know
        raise OnlyInherited(f"{name_of(handle)} is being read by a loop (or next()): {error}") from error


def _newline(handle: io.TextIOWrapper, position: int) -> str | None:
    """The `newline` that it was opened with, which no attribute tells.

    It is among what the handle refers to, in this order: encoding, newline (unless None), text that was read ahead (if
    any), errors. To go where one is drops what was read ahead.
    """
    if handle.seekable():
        handle.seek(position)
    texts = [part for part in gc.get_referents(handle) if type(part) is str]
    return texts[1] if len(texts) == 3 else None


def pack(handle: Any, luggage: Luggage) -> SentFile:
    """The file behind a handle that reads; CannotCross if it is not one, or does more than read."""
    name = name_of(handle)
    if handle.writable():
        raise refuse_writing(f"the file {name!r}", str(handle.mode))
    fd = handle.fileno()
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise CannotCross(
            f"{name!r} cannot be opened again in a worker",
            why="it is not a regular file: what one process reads from it, another does not",
            try_=f"open it in the worker (in __getitem__ or worker_init_fn), or {FORK}",
        )
    return luggage.pack_file(fd)


def name_of(handle: Any) -> Any:
    """Its path, if it has one."""
    return getattr(handle, "name", None) or f"a {type(handle).__name__}"


KINDS: dict[type, Kind] = {
    io.FileIO: Kind(plan_raw),
    io.BufferedReader: Kind(plan_buffered),
    io.BufferedWriter: Kind(plan_writer),
    io.BufferedRandom: Kind(plan_writer),
    io.TextIOWrapper: Kind(plan_text),
}
