"""Archives open for reading: zip and tar. Their table of contents is read again from the file below."""

from __future__ import annotations

import tarfile
import zipfile
from typing import Any

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, OnlyInherited, fresh, refuse_writing, with_attributes

# What the classes themselves put on their instances, and opening puts there again.
_OF_ZIP = frozenset({"fp", "filelist", "NameToInfo", "_lock", "_fileRefCnt", "_seekable", "_writing", "start_dir"})
_OF_TAR = frozenset({"fileobj", "members", "firstmember", "inodes", "offset", "_loaded", "_unames", "_gnames"})
_TAR_OPTIONS = ("tarinfo", "dereference", "ignore_zeros", "encoding", "errors", "debug", "errorlevel")


def plan_zip(handle: zipfile.ZipFile, luggage: Luggage) -> Any:
    """The file below and the password; a closed archive is like any other object."""
    if handle.fp is None:
        return NotImplemented
    if handle.mode != "r":
        raise refuse_writing(f"the archive {handle.filename!r}", handle.mode)
    settings = {name: vars(handle)[name] for name in ("_filePassed", "filename", "pwd")}
    options = {"metadata_encoding": handle.metadata_encoding} if hasattr(handle, "metadata_encoding") else {}
    return with_attributes(handle, open_zip, type(handle), handle.fp, options, settings, but=_OF_ZIP)


def open_zip(
    cls: type[zipfile.ZipFile], file: Any, options: dict[str, Any], settings: dict[str, Any]
) -> zipfile.ZipFile:
    """The other side of `plan_zip`."""
    handle: zipfile.ZipFile = fresh(cls)
    zipfile.ZipFile.__init__(handle, file, **options)
    vars(handle).update(settings)
    return handle


def plan_tar(handle: Any, luggage: Luggage) -> Any:
    """The file below, where the archive begins in it, and how names are read."""
    if handle.closed:
        return NotImplemented
    if handle.mode != "r":
        raise refuse_writing(f"the archive {handle.name!r}", handle.mode)
    if isinstance(handle.fileobj, tarfile._Stream):  # type: ignore[attr-defined]
        raise OnlyInherited(f"the archive {handle.name!r} is read as a stream, which has no second beginning")
    start = handle.members[0].offset if handle.members else 0
    options = {name: getattr(handle, name) for name in _TAR_OPTIONS}
    settings = {name: vars(handle)[name] for name in ("_extfileobj", "name", "_mode")}
    return with_attributes(handle, open_tar, type(handle), handle.fileobj, start, options, settings, but=_OF_TAR)


def open_tar(
    cls: type[tarfile.TarFile], file: Any, start: int, options: dict[str, Any], settings: dict[str, Any]
) -> tarfile.TarFile:
    """The other side of `plan_tar`."""
    handle: tarfile.TarFile = fresh(cls)
    file.seek(start)
    tarfile.TarFile.__init__(handle, fileobj=file, **options)
    vars(handle).update(settings)
    return handle


KINDS: dict[type, Kind] = {zipfile.ZipFile: Kind(plan_zip), tarfile.TarFile: Kind(plan_tar)}
