"""Anonymous shared memory: the only file that makes or maps it.

A segment has no name anywhere (so nothing can be left behind), does not depend on the size of `/dev/shm`, and is
reserved when it is made: a machine without memory says so here, and never by a bus error later.

A mapping lives exactly as long as any object that points into it, and holds no descriptor: Python's own `mmap` keeps a
duplicate of one (before 3.13), so that batches a user keeps would use up the descriptors of the program.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import gc
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, cast

from antifreeze import machine
from antifreeze.errors import ArenaError

# Slots are made of whole chunks, so that batches that differ by a few bytes fit the same slot.
CHUNK = 64 << 10

Owner = ctypes.Array[ctypes.c_char]
"""An object that exposes mapped memory and keeps it mapped."""


class _Collector:
    """Whether the collector is at work, and what is to be unmapped when it is done.

    It calls `__del__` of all that it collects, in any order, before it lets go of anything: an iterator in a cycle reads
    its boards at its end, and would crash if they had ended first.
    """

    def __init__(self) -> None:
        self.is_at_work = False
        self.waiting: list[Callable[[], object]] = []
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: object) -> None:
        self.is_at_work = phase == "start"
        while self.waiting and not self.is_at_work:
            self.waiting.pop()()


_collector = _Collector()


class _Mapping:
    """Mapped memory, unmapped when nothing refers to it any more."""

    __slots__ = ("_unmap", "address", "size")

    def __init__(self, fd: int, size: int, flags: int) -> None:
        libc = _libc()
        address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address: int = address
        self.size = size
        self._unmap = functools.partial(libc.munmap, address, size)  # modules may be gone when the interpreter ends

    def __del__(self, _collector: _Collector = _collector, _is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # The collector of an interpreter that ends does not say that it is at work; and all is unmapped soon.
        if hasattr(self, "_unmap") and not _is_ending():
            if _collector.is_at_work:
                _collector.waiting.append(self._unmap)
            else:
                self._unmap()

    def owner(self) -> Owner:
        owner = _owner_type(self.size).from_address(self.address)
        owner.mapping = self
        return cast("Owner", owner)


class Segment:
    """A stretch of shared memory, mapped into this process."""

    __slots__ = ("_mapping", "address", "fd", "size", "view")

    def __init__(self, fd: int, size: int) -> None:
        self._mapping = _Mapping(fd, size, mmap.MAP_SHARED)
        self.address = self._mapping.address
        self.view = memoryview(self._mapping.owner()).cast("B")
        self.fd = fd
        self.size = size

    def owner(self) -> Owner:
        """A new object that exposes the whole memory and that everything made from it keeps alive.

        Tensors, arrays and memoryviews hold the object that gave them the buffer; when the last of them is gone, so is
        this one, and a weak reference to it tells.
        """
        return self._mapping.owner()

    def close_descriptor(self, _close: Callable[[int], None] = os.close) -> None:
        """Close the descriptor; the mapping stays until nothing points into it."""
        # `os` may be gone when an iterator outlives its module at the end of the interpreter.
        fd, self.fd = self.fd, -1
        if fd >= 0:
            _close(fd)

    def __repr__(self) -> str:
        return f"<Segment {self.size >> 10} KiB fd={self.fd}>"


def create(size: int) -> Segment:
    """New memory of at least this many bytes, reserved; ArenaError if the machine has not got it."""
    size = max(CHUNK, -(-size // CHUNK) * CHUNK)
    available = machine.available_memory()
    if size > available:
        raise _no_memory(size, f"{available >> 20} MB are available to this process")
    fd = anonymous_file("antifreeze-slot")
    try:
        os.posix_fallocate(fd, 0, size)
        return Segment(fd, size)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise _no_memory(size, str(error)) from error
        raise


def anonymous_file(name: str) -> int:
    """A descriptor of memory that has no name in any file system (an unlinked file where the kernel has no memfd)."""
    try:
        return _memfd_create(name)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            raise
    fd, path = tempfile.mkstemp(prefix=name)
    os.unlink(path)
    return fd


def copy_of(pieces: Iterable[bytes | memoryview], name: str) -> int:
    """A descriptor of anonymous memory that holds these bytes, one piece after the other."""
    fd = anonymous_file(name)
    try:
        for piece in pieces:
            view = memoryview(piece).cast("B")
            while view.nbytes:
                view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_all(fd: int) -> bytearray:
    """What `copy_of` put into this descriptor; closes it."""
    try:
        content = bytearray(os.fstat(fd).st_size)
        place = 0
        while place < len(content):  # one call reads 2 GiB at most
            place += os.preadv(fd, [memoryview(content)[place:]], place)
        return content
    finally:
        os.close(fd)


def map_private(fd: int) -> memoryview:
    """Map a whole descriptor copy-on-write, and close it: pages are shared until somebody writes into them."""
    try:
        return memoryview(_Mapping(fd, os.fstat(fd).st_size, mmap.MAP_PRIVATE).owner()).cast("B")
    finally:
        os.close(fd)


@functools.lru_cache(maxsize=64)
def _owner_type(size: int) -> Any:
    # A class of our own, for its instances can hold the mapping.
    return type("SlotMemory", (ctypes.c_char * size,), {})


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc


def _memfd_create(name: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    # Some builds of Python (uv's, conda's) were made against a C library that lacks it; the running one may have it.
    try:
        fd: int = _libc().memfd_create(name.encode(), 1)
    except AttributeError:
        raise OSError(errno.ENOSYS, "no memfd_create in the C library") from None
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def _no_memory(size: int, why: str) -> ArenaError:
    return ArenaError(
        f"no shared memory for a batch of {size >> 20} MB",
        why=why,
        try_="a smaller batch_size, fewer workers or prefetch_factor=1",
    )
