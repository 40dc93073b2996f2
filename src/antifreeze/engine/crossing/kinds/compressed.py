"""Compressed files open for reading: the file below goes along, and the copy is wound forward to the same position."""

from __future__ import annotations

import gzip
import io
from typing import Any

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, Reduced, fresh, refuse_writing, with_attributes
from antifreeze.engine.crossing.kinds.files import name_of

# What the classes themselves put on their instances.
_OWN = frozenset({"myfileobj", "fileobj", "mode", "name", "_buffer", "_fp", "_closefp", "_mode", "_pos"})


def plan_gzip(handle: gzip.GzipFile, luggage: Luggage) -> Reduced:
    """The file below, whose it is, and the position in what is decompressed."""
    if handle.closed:
        return open_gzip, (type(handle), io.BytesIO(), False, handle.name, None)
    if not handle.readable():
        raise refuse_writing(f"the compressed file {handle.name!r}", "w")
    owns = handle.myfileobj is not None
    return with_attributes(handle, open_gzip, type(handle), handle.fileobj, owns, handle.name, handle.tell(), but=_OWN)


def open_gzip(cls: type[gzip.GzipFile], file: Any, owns: bool, name: str, position: int | None) -> Any:
    """The other side of `plan_gzip`; no position: it is closed."""
    handle: gzip.GzipFile = fresh(cls)
    file.seek(0)  # where gzip itself goes back to
    gzip.GzipFile.__init__(handle, name, "rb", fileobj=file)
    if owns:
        handle.myfileobj = file
    return _wound(handle, position)


def plan_like_gzip(handle: Any, base: type[Any], options: dict[str, Any]) -> Reduced:
    """The same for the classes of bz2 and lzma, which are alike; `options` say how it is to be read."""
    if handle.closed:
        return open_like_gzip, (base, type(handle), io.BytesIO(), False, options, None)
    if not handle.readable():
        raise refuse_writing(f"the compressed file {name_of(handle._fp)!r}", "w")
    file, owns = handle._fp, handle._closefp
    return with_attributes(handle, open_like_gzip, base, type(handle), file, owns, options, handle.tell(), but=_OWN)


def open_like_gzip(
    base: Any, cls: type[Any], file: Any, owns: bool, options: dict[str, Any], position: int | None
) -> Any:
    """The other side of `plan_like_gzip`."""
    handle = fresh(cls)
    file.seek(0)
    base.__init__(handle, file, "rb", **options)
    handle._closefp = owns
    return _wound(handle, position)


def _wound(handle: Any, position: int | None) -> Any:
    if position is None:
        handle.close()
    else:
        handle.seek(position)
    return handle


KINDS: dict[type, Kind] = {gzip.GzipFile: Kind(plan_gzip)}
