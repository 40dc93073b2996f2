"""Temporary files with a name: the copy reads, wherever the original writes, and never deletes."""

from __future__ import annotations

import io
import os
import tempfile
from typing import Any

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, Reduced, SentFile

_Wrapper = tempfile._TemporaryFileWrapper


def plan_named(handle: Any, luggage: Luggage) -> Reduced:
    """What lies in the file by now, and a position; a file that reads only is sent as any other."""
    file = handle.file
    if file.closed or not file.writable():
        return open_named, (file, handle.name)
    file.flush()
    encoding = (file.encoding, file.errors) if isinstance(file, io.TextIOWrapper) else None
    return open_to_read, (luggage.pack_file(file.fileno()), handle.name, encoding, file.tell())


def open_named(file: Any, name: str) -> Any:
    """The other side of `plan_named`, around a file that is a copy already."""
    return _Wrapper(file, name, delete=False)


def open_to_read(sent: SentFile, name: str, encoding: tuple[str, str | None] | None, position: int) -> Any:
    """The other side of `plan_named`, for a file that the original can write into."""
    fd = sent.open()
    file: Any = os.fdopen(fd, "rb")
    if encoding is not None:
        file = io.TextIOWrapper(file, *encoding)
    file.seek(position)
    return open_named(file, name)


KINDS: dict[type, Kind] = {_Wrapper: Kind(plan_named)}
