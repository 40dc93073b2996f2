"""CPU tensors move to shared memory, in place, as they do when torch pickles them for a spawned worker."""

from __future__ import annotations

import contextlib
import ctypes
import os

import torch

from antifreeze import machine
from antifreeze.engine.arena import segment as memory

# Left free in /dev/shm, for others.
SPARE_BYTES = 1 << 20


def share(storage: torch.UntypedStorage) -> bool:
    """Move a storage to shared memory: all tensors over it are there then; returns whether that was possible.

    Its memory lies in `/dev/shm`, as torch's does, or outside it where there is no room (64 MB in a container).
    """
    room = machine.shared_memory_room()
    if room is not None and room.free_bytes > storage.nbytes() + SPARE_BYTES:
        with contextlib.suppress(RuntimeError):  # there was none after all
            storage._share_fd_cpu_()
            return True
    return _move(storage)


def _move(storage: torch.UntypedStorage) -> bool:
    if not hasattr(storage, "_swap_data_ptr_"):  # in older versions of torch
        return False
    length = storage.nbytes()
    raw = memoryview((ctypes.c_ubyte * length).from_address(storage.data_ptr())).cast("B")
    try:
        fd = memory.copy_of([raw], "antifreeze-tensor")
    except OSError:  # no memory, or no descriptor
        return False
    try:
        storage._swap_data_ptr_(torch.UntypedStorage._new_shared_fd_cpu(fd, length))  # type: ignore[attr-defined]
    finally:
        os.close(fd)
    return True


def storage_named(manager: bytes, name: bytes, length: int) -> torch.UntypedStorage:
    """On the other side: a storage that is shared by its name."""
    return torch.UntypedStorage._new_shared_filename_cpu(manager, name, length)
