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
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable
from typing import Any, cast

from antifreeze import machine
from antifreeze.errors import ArenaError

# Slots are made of whole chunks, so that batches that differ by a few bytes fit the same slot.
CHUNK = 64 << 10
# Room to grow, as a share of the batch: the next batch is rarely of exactly the same size.
SLACK = 8

_MFD_CLOEXEC, _MFD_NOEXEC_SEAL = 1, 8
# Linux: free the pages of shared memory that is mapped here, for all who have it mapped.
_MADV_REMOVE = 9

Owner = ctypes.Array[ctypes.c_char]
"""An object that exposes mapped memory and keeps it mapped."""


# Python's `mmap` does not name them all.
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000


def _map(fd: int, size: int, flags: int) -> mmap.mmap:
    """The memory of this descriptor, unmapped when nothing refers to it any more.

    Python reserves the addresses, and the descriptor's memory is put over them: so C code unmaps it, when the object is
    freed. (A `__del__` would come too early, for the collector calls it while others that it collects still read the
    memory; and it would lose what a signal handler raises meanwhile.)
    """
    reserved = _reserve(size, _MAP_NORESERVE)
    address = _address_of(reserved)
    mapped = _libc().mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags | _MAP_FIXED, fd, 0)
    if mapped != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return reserved


_mappings: set[weakref.ref[mmap.mmap]] = set()
"""Those that there are."""
_kept: list[mmap.mmap | None] | None = None
"""Those that there are at the end of the program, and come then."""


def _reserve(size: int, flags: int = 0) -> mmap.mmap:
    reserved = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    _mappings.add(weakref.ref(reserved, _mappings.discard))
    if _kept is not None:
        _kept.append(reserved)
    return reserved


def keep_all() -> None:
    """Unmap nothing any more: the program ends.

    Python lets other threads run while it unmaps. A daemon thread that wants to go on when the interpreter is at its end
    is ended where it is; and if that is where torch ends a tensor, the whole program is aborted.
    """
    global _kept
    _kept = []  # before the others: other threads may be at work
    _kept.extend(mapping() for mapping in list(_mappings))


def _address_of(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def _owner_of(mapping: mmap.mmap) -> Owner:
    return cast("Owner", _owner_type(len(mapping)).from_buffer(mapping))


class Segment:
    """A stretch of memory, mapped into this process: shared memory, or (without a descriptor) its own."""

    __slots__ = ("_mapping", "address", "fd", "size", "view")

    def __init__(self, fd: int, size: int) -> None:
        if fd >= 0:
            self._mapping = _map(fd, size, mmap.MAP_SHARED)
        else:
            self._mapping = _reserve(size)
        self.address = _address_of(self._mapping)
        self.view = memoryview(self._mapping)
        self.fd = fd
        self.size = size

    def owner(self) -> Owner:
        """A new object that exposes the whole memory and that everything made from it keeps alive.

        Tensors, arrays and memoryviews hold the object that gave them the buffer; when the last of them is gone, so is
        this one, and a weak reference to it tells. The collector does not follow it: else it would clear the weak
        reference first, and then call a `__del__` that may bring back to life what points into the memory.
        """
        owner = _owner_of(self._mapping)
        _untrack(owner)
        return owner

    def close_descriptor(self, _close: Callable[[int], None] = os.close) -> None:
        """Close the descriptor; the mapping stays until nothing points into it."""
        # `os` may be gone when an iterator outlives its module at the end of the interpreter.
        fd, self.fd = self.fd, -1
        if fd >= 0:
            _close(fd)

    def give_memory_back(self) -> None:
        """Free the memory itself, whoever has it mapped; only of a segment whose content is of no use to anybody."""
        _libc().madvise(self.address, self.size, _MADV_REMOVE)

    def __repr__(self) -> str:
        return f"<Segment {self.size >> 10} KiB fd={self.fd}>"


def slot_bytes_for(needed: int) -> int:
    """The size of a slot that is made for a batch of this many bytes."""
    return _whole_chunks(needed + needed // SLACK)


def create(size: int) -> Segment:
    """New memory of at least this many bytes, reserved; ArenaError if the machine has not got it."""
    made = try_to_create(size)
    if isinstance(made, Segment):
        return made
    raise _no_memory(size, made)


def in_private(size: int) -> Segment:
    """Memory of this process alone, of at least this many bytes."""
    return Segment(-1, _whole_chunks(size))


def try_to_create(size: int) -> Segment | str:
    """New memory of at least this many bytes, reserved; or why there is none at the moment."""
    size = _whole_chunks(size)
    available = machine.available_memory()
    if size > available:
        return f"{available >> 20} MB are available to this process"
    fd = anonymous_file("antifreeze-slot")
    try:
        os.posix_fallocate(fd, 0, size)
        return Segment(fd, size)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            return str(error)
        if error.errno == errno.EFBIG:
            raise _too_large(size) from error
        raise


def anonymous_file(name: str) -> int:
    """A descriptor of memory that has no name in any file system (an unlinked file where the kernel has no memfd)."""
    made: list[int] = []
    _open_anonymous(made, name)
    return made[0]


def _open_anonymous(owner: list[int], name: str) -> None:
    # A system may refuse memory that could be executed (vm.memfd_noexec=2); kernels before 6.3 do not know the flag.
    for flags in (_MFD_CLOEXEC | _MFD_NOEXEC_SEAL, _MFD_CLOEXEC):
        try:
            _open_memfd(owner, name, flags)
            return
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL):
                raise
    fd, path = tempfile.mkstemp(prefix=name)
    owner.append(fd)
    os.unlink(path)


def copy_of(pieces: Iterable[bytes | memoryview], name: str) -> int:
    """A descriptor of anonymous memory that holds these bytes, one piece after the other."""
    made: list[int] = []
    try:
        copy_into(made, pieces, name)
    except BaseException:
        for fd in made:
            os.close(fd)
        raise
    return made[0]


def copy_into(owner: list[int], pieces: Iterable[bytes | memoryview], name: str) -> None:
    """As `copy_of`; the descriptor is in this list as soon as it is open, also if an error or a signal comes then."""
    _open_anonymous(owner, name)
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while view.nbytes:
            try:
                view = view[os.write(owner[-1], view) :]
            except OSError as error:
                if error.errno == errno.EFBIG:
                    raise _too_large(os.lseek(owner[-1], 0, os.SEEK_CUR) + view.nbytes) from error
                raise


def read_all(fd: int) -> bytearray:
    """What `copy_of` put into this descriptor; closes it."""
    try:
        return content_of(fd)
    finally:
        os.close(fd)


def content_of(fd: int) -> bytearray:
    """What `copy_of` put into this descriptor."""
    content = bytearray(os.fstat(fd).st_size)
    place = 0
    while place < len(content):  # one call reads 2 GiB at most
        place += os.preadv(fd, [memoryview(content)[place:]], place)
    return content


def map_private(fd: int) -> memoryview:
    """Map a whole descriptor copy-on-write, and close it: pages are shared until somebody writes into them."""
    try:
        return memoryview(_map(fd, os.fstat(fd).st_size, mmap.MAP_PRIVATE))
    finally:
        os.close(fd)


@functools.lru_cache(maxsize=64)
def _owner_type(size: int) -> Any:
    # A class of our own, for its instances can be referred to weakly.
    return type("SlotMemory", (ctypes.c_char * size,), {})


# By its index, and not as an attribute, which would be shared with all other users of it.
_untrack = ctypes.pythonapi["PyObject_GC_UnTrack"]
_untrack.argtypes = (ctypes.py_object,)
_untrack.restype = None


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
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc


def _open_memfd(owner: list[int], name: str, flags: int) -> None:
    if hasattr(os, "memfd_create"):  # called from C: no signal handler runs before the descriptor is in the list
        owner.extend(map(os.memfd_create, (name,), (flags,)))
        return
    # Some builds of Python (uv's, conda's) were made against a C library that lacks it; the running one may have it.
    try:
        fd: int = _libc().memfd_create(name.encode(), flags)
    except AttributeError:
        raise OSError(errno.ENOSYS, "no memfd_create in the C library") from None
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    owner.append(fd)


def _whole_chunks(size: int) -> int:
    return max(CHUNK, -(-size // CHUNK) * CHUNK)


def _too_large(size: int) -> ArenaError:
    limit = machine.file_size_limit()
    return ArenaError(
        f"no shared memory of {size >> 10} KiB",
        why=f"files may not become larger than {(limit or 0) >> 10} KiB (ulimit -f, RLIMIT_FSIZE), nor may shared memory",
        try_="ulimit -f unlimited before the program starts, or smaller batches",
    )


def _no_memory(size: int, why: str) -> ArenaError:
    return ArenaError(
        f"no shared memory for a batch of {size >> 20} MB",
        why=why,
        try_="a smaller batch_size, fewer workers or prefetch_factor=1",
    )
