"""Memory that is mapped from a file: mapped again, so that nothing is copied and all workers share the file's pages.

An `mmap` must be read-only, or one's own copy (ACCESS_COPY) that has not been written to. Arrays (`arrays.py`) and tensors
over a mapping may be anything: with torch's own spawn they are copied, and so they are here if they cannot be mapped.
"""

from __future__ import annotations

import bisect
import mmap
import os
from dataclasses import dataclass

from antifreeze import machine
from antifreeze.engine.crossing.kinds.base import FORK, Kind, Luggage, OnlyInherited, Reduced, SentFile, refuse_writing
from antifreeze.errors import CannotCross

# Python's `mmap` does not name it.
_MAP_NORESERVE = 0x4000
# Files there are the memory of processes.
_SHARED_MEMORY = "/dev/shm/"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a file, to be mapped."""

    file: SentFile
    offset: int
    length: int
    is_readonly: bool

    def map(self) -> mmap.mmap:
        """On the other side: the mapping; if it may be written to, that stays in the process."""
        fd = self.file.open()
        try:
            if self.is_readonly:
                return mmap.mmap(fd, self.length, offset=self.offset, access=mmap.ACCESS_READ)
            flags = mmap.MAP_PRIVATE | _MAP_NORESERVE  # the file may be larger than memory
            return mmap.mmap(fd, self.length, flags=flags, offset=self.offset)
        finally:
            os.close(fd)


def plan_mmap(handle: mmap.mmap, luggage: Luggage) -> Reduced:
    """A stretch of its file, and a position."""
    if handle.closed:
        return open_closed, ()
    found = _find(address_of(handle), luggage)
    if found is None:
        raise OnlyInherited("an mmap of no file, or of one that has no name any more")
    if found.is_shared and not is_readonly(handle):
        raise refuse_writing(f"the mmap of {found.path!r}", "mmap.ACCESS_WRITE")
    stretch = pack(address_of(handle), len(handle), luggage, is_readonly=is_readonly(handle))
    if stretch is None:
        raise CannotCross(
            f"the mmap of {found.path!r} cannot be mapped again in a worker",
            why="it has been written to, which is in no file; or another file has taken the name of its own",
            try_=f"map it with access=mmap.ACCESS_READ, or {FORK}",
        )
    return open_again, (stretch, handle.tell())


def open_again(stretch: Stretch, position: int) -> mmap.mmap:
    """The other side of `plan_mmap`."""
    handle = stretch.map()
    handle.seek(position)
    return handle


def open_closed() -> mmap.mmap:
    """What is closed arrives closed."""
    handle = mmap.mmap(-1, 1)
    handle.close()
    return handle


def pack(address: int, length: int, luggage: Luggage, *, is_readonly: bool) -> Stretch | None:
    """The part of a file that is mapped there; None if there is none, or if it is not what the memory holds, or goes on to.

    What the program writes into shared memory is not to be seen by workers: `multiprocessing` sends them what is there now.
    """
    found = _find(address, luggage)
    if found is None or (found.is_shared and not is_readonly and found.path.startswith(_SHARED_MEMORY)):
        return None
    if not (is_readonly or found.is_shared) and machine.own_bytes(address, address + length) != 0:
        return None
    file = _pack_file(found, luggage)
    return None if file is None else Stretch(file, found.offset + address - found.start, length, is_readonly)


def pack_part(address: int, length: int, luggage: Luggage) -> tuple[Stretch | None, int]:
    """The same for memory that begins anywhere: a stretch of whole pages that one may write to, and what to leave out."""
    before = address % mmap.ALLOCATIONGRANULARITY
    return pack(address - before, length + before, luggage, is_readonly=False), before


def _find(address: int, luggage: Luggage) -> machine.MappedFile | None:
    mapped = luggage.memo.get("mapped files")
    if mapped is None:
        mapped = luggage.memo["mapped files"] = machine.mapped_files()
    place = bisect.bisect_right(mapped, address, key=lambda each: each.start) - 1
    return mapped[place] if place >= 0 and address < mapped[place].end else None


def _pack_file(mapped: machine.MappedFile, luggage: Luggage) -> SentFile | None:
    """The file, if its name still leads to it."""
    try:
        fd = os.open(mapped.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        is_it = (found.st_dev, found.st_ino) == (mapped.device, mapped.inode) or _maps_alike(fd, mapped)
        return luggage.pack_file(fd) if is_it else None
    finally:
        os.close(fd)


def _maps_alike(fd: int, expected: machine.MappedFile) -> bool:
    """Whether a mapping of this descriptor looks the same: on layered file systems, `stat` tells other numbers."""
    try:
        probe = mmap.mmap(fd, 1, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # it is of a kind that cannot be mapped, or empty
        return False
    with probe:
        address = address_of(probe)
        found = next((each for each in machine.mapped_files() if each.start <= address < each.end), None)
    return found is not None and (found.device, found.inode) == (expected.device, expected.inode)


def is_readonly(mapping: mmap.mmap) -> bool:
    """Whether this process may not write there."""
    with memoryview(mapping) as view:
        return view.readonly


def address_of(mapping: mmap.mmap) -> int:
    """Where it lies in memory."""
    import numpy as np  # noqa: PLC0415 - torch works without it

    address: int = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    return address


KINDS: dict[type, Kind] = {mmap.mmap: Kind(plan_mmap)}
