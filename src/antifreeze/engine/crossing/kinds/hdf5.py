"""h5py's files, groups and datasets: the file is opened again by its path, the others are looked up in it."""

from __future__ import annotations

from typing import Any

import h5py

from antifreeze.engine.crossing.kinds.base import (
    FORK,
    Kind,
    Luggage,
    NamedFile,
    Reduced,
    fresh,
    named_file,
    refuse_writing,
    with_attributes,
)
from antifreeze.errors import CannotCross

_ON_DISK = ("sec2", "stdio", "direct")
_OWN = frozenset({"_id", "_libver", "_dxpl", "_readonly", "_cache_props"})


def plan_file(handle: Any, luggage: Luggage) -> Reduced:
    """Its path and how it was opened."""
    if not handle:
        return open_closed, (type(handle), type(handle.id))
    file, is_ours = luggage.memo.setdefault(_key(handle), (handle, False))
    if is_ours and file is not handle:
        return same, (file,)
    if handle.mode != "r":
        raise refuse_writing(f"the HDF5 file {handle.filename!r}", handle.mode)
    if handle.driver == "fileobj":
        raise CannotCross(
            f"an HDF5 file that is read through {handle.filename} cannot be opened again in a worker",
            why="h5py does not say which file object is below it",
            try_=f"h5py.File(path) in place of h5py.File(file), or {FORK}",
        )
    place: NamedFile | str = named_file(handle.filename) if handle.driver in _ON_DISK else handle.filename
    return with_attributes(handle, open_file, type(handle), place, _options(handle), but=_OWN)


def open_file(cls: type[Any], place: NamedFile | str, options: dict[str, Any]) -> Any:
    """The other side of `plan_file`."""
    handle = fresh(cls)
    if isinstance(place, NamedFile):
        place.check()
    h5py.File.__init__(handle, place.path if isinstance(place, NamedFile) else place, "r", **options)
    return handle


def open_closed(cls: type[Any], id_type: type[Any]) -> Any:
    """What is closed arrives closed."""
    handle = fresh(cls)
    handle._id = id_type(0)
    return handle


def plan_member(handle: Any, luggage: Luggage) -> Reduced:
    """The file that it is in, and its name there."""
    if not handle:
        return open_closed, (type(handle), type(handle.id))
    if handle.name is None:
        raise CannotCross(f"{handle!r} cannot be found again in a worker", why="it has no name in its file", try_=FORK)
    # Asked for its file, h5py makes another object every time: all must become one, and the user's own, if it comes too.
    file, _ = luggage.memo.setdefault(_key(handle), (handle.file, True))
    return find_member, (type(handle), file, handle.name)


def find_member(cls: type[Any], file: Any, name: str) -> Any:
    """The other side of `plan_member`."""
    found = file[name]
    return found if type(found) is cls else cls(found.id)


def same(handle: Any) -> Any:
    """The copy that there is already."""
    return handle


def close(handle: Any) -> None:
    """Nothing is written, but its lock on the file is given back in order."""
    handle.close()


def _key(handle: Any) -> tuple[str, int]:
    return "h5py", h5py.h5o.get_info(handle.id).fileno


def _options(handle: Any) -> dict[str, Any]:
    access = handle.id.get_access_plist()
    _, slots, size, policy = access.get_cache()
    options = {"rdcc_nslots": slots, "rdcc_nbytes": size, "rdcc_w0": policy, "swmr": handle.swmr_mode}
    if handle.driver != "sec2":
        options["driver"] = handle.driver
    if handle.driver == "core":
        options["backing_store"] = False
    if hasattr(access, "get_file_locking"):
        is_used, ignores_errors = access.get_file_locking()
        options["locking"] = ("best-effort" if ignores_errors else True) if is_used else False
    return options


KINDS: dict[type, Kind] = {
    h5py.File: Kind(plan_file, close=close),
    h5py.Group: Kind(plan_member),
    h5py.Dataset: Kind(plan_member),
    h5py.Datatype: Kind(plan_member),
}
