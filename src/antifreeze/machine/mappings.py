"""The memory of this process: what is mapped from where, and what has become of it since a fork."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from antifreeze.machine.reading import lines

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

# What the kernel says of a page is a number of 64 bits, and these are of its highest byte: the page is there, and it is
# nobody else's. Pages of files have another bit, too, and are not meant.
_PRESENT, _EXCLUSIVE = 0x80, 0x01
_HIGHEST_BYTE = 7 if sys.byteorder == "little" else 0
_PAGES_AT_ONCE = 1 << 17


class MappedFile(NamedTuple):
    """A stretch of this process's memory that is mapped from a file with a name."""

    start: int
    end: int
    path: str
    offset: int
    """Where in the file it starts."""
    device: int
    inode: int
    is_shared: bool
    """Whether what is written there is written into the file."""


def mapped_files() -> list[MappedFile]:
    """All of this process, in the order of their addresses."""
    found = []
    for line in lines("/proc/self/maps"):
        place, rights, offset, device, inode, *name = line.split(maxsplit=5)
        if name and name[0].startswith("/") and not name[0].endswith(" (deleted)"):
            start, end = (int(number, 16) for number in place.split("-"))
            major, minor = (int(number, 16) for number in device.split(":"))
            number = os.makedev(major, minor)
            found.append(MappedFile(start, end, name[0], int(offset, 16), number, int(inode), "s" in rights))
    return found


def own_bytes(start: int, end: int) -> int | None:
    """How much of this memory, which is mapped from a file, the process has written and has for itself; None: unknown."""
    found = None
    is_there = False
    for line in lines("/proc/self/smaps"):
        key, _, fact = line.partition(" ")
        if not key.endswith(":"):
            first, last = (int(number, 16) for number in key.split("-"))
            is_there = first < end and start < last
        elif is_there and key in ("Anonymous:", "Swap:"):  # written and in memory; written and put away
            found = (found or 0) + (int(fact.split()[0]) << 10)
    return found


class Mapping(NamedTuple):
    """A stretch of this process's memory that is its own and no file's."""

    start: int
    end: int


class Memory(NamedTuple):
    """What has become of the memory of a forked process; all in bytes."""

    inherited: int
    """What it has from its parent, written or not."""
    copied: int
    """How much of that it has written to, and has a copy of its own of."""
    own: int
    """What it has got since, and has written to."""


def private_mappings() -> list[Mapping]:
    """The stretches of this process's memory that a forked child would get a copy of when it writes to them."""
    return [
        Mapping(*(int(number, 16) for number in place.split("-")))
        for place, rights, _, _, inode, *_ in map(str.split, lines("/proc/self/maps"))
        if "w" in rights and "p" in rights and inode == "0"
    ]


def memory_since(fork: Iterable[Mapping]) -> Memory | None:
    """What has become of this process's memory, which had these mappings when it was forked; None: nobody knows.

    Several times as quick as `smaps`, which finds the same.
    """
    inherited = copied = 0
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            for mapping in fork:
                there, own_pages = _count_pages(pagemap.fileno(), mapping)
                inherited += there
                copied += own_pages
        _, resident, of_files, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except OSError:
        return None
    own = max(0, resident - of_files - inherited)
    return Memory(inherited * _PAGE_BYTES, copied * _PAGE_BYTES, own * _PAGE_BYTES)


def whole_pages(start: int, end: int) -> Mapping:
    """The pages of which nothing lies outside this memory."""
    return Mapping(-(-start // _PAGE_BYTES) * _PAGE_BYTES, end // _PAGE_BYTES * _PAGE_BYTES)


def copied_bytes(pages: Mapping) -> int | None:
    """How much of these pages, which are no file's, this process has for itself: a forked one has written to them.

    None: nobody knows.
    """
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            return _count_pages(pagemap.fileno(), pages)[1] * _PAGE_BYTES
    except OSError:
        return None


def _count_pages(pagemap: int, mapping: Mapping) -> tuple[int, int]:
    """How many pages of a mapping are there, and how many of those are nobody else's."""
    there = own = 0
    for start in range(mapping.start, mapping.end, _PAGES_AT_ONCE * _PAGE_BYTES):
        pages = min(_PAGES_AT_ONCE, (mapping.end - start) // _PAGE_BYTES)
        entries = os.pread(pagemap, 8 * pages, start // _PAGE_BYTES * 8)
        flags = entries[_HIGHEST_BYTE::8]
        exclusive = flags.count(_PRESENT | _EXCLUSIVE)
        there += flags.count(_PRESENT) + exclusive
        own += exclusive
    return there, own


def private_bytes(pid: int | None = None) -> int | None:
    """How much memory a process, or this one, has that nobody shares with it; None: unknown."""
    found = None
    for line in lines(f"/proc/{'self' if pid is None else pid}/smaps_rollup"):
        if line.startswith("Private_"):
            found = (found or 0) + (int(line.split()[1]) << 10)
    return found


def faulted_bytes() -> int:
    """How much memory this process has had to be given, or to copy, since it was forked: at most, in whole pages."""
    import resource  # noqa: PLC0415 - not on every system, and needed in workers only

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * _PAGE_BYTES
