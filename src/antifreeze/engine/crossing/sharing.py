"""CPU tensors move to shared memory, in place, as they do when torch pickles them for a spawned worker."""

from __future__ import annotations

import contextlib
import ctypes
import os

import torch

from antifreeze import machine
from antifreeze.engine.arena import segment as memory
from antifreeze.torch_side.tensors import share_by_descriptor, storage_of_descriptor, storage_of_name, swap_memory

# Left free in /dev/shm, for others.
SPARE_BYTES = 1 << 20


def share(storage: torch.UntypedStorage) -> bool:
    """Move a storage to shared memory: all tensors over it are there then; returns whether that was possible.

    Its memory lies in `/dev/shm`, as torch's does, or outside it where there is no room (64 MB in a container).
    """
    room = machine.shared_memory_room()
    if room is not None and room.free_bytes > storage.nbytes() + SPARE_BYTES:
        with contextlib.suppress(RuntimeError):  # there was none after all
            share_by_descriptor(storage)
            return True
    return move(storage) is not None


def move(storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
    """Move a storage to shared memory outside `/dev/shm`; returns one over its old memory, or None if it stays there."""
    if swap_memory is None:
        return None
    length = storage.nbytes()
    raw = memoryview((ctypes.c_ubyte * length).from_address(storage.data_ptr())).cast("B")
    try:
        fd = memory.copy_of([raw], "antifreeze-tensor")
    except OSError:  # no memory, or no descriptor
        return None
    try:
        other = storage_of_descriptor(fd, length)
        swap_memory(storage, other)
    finally:
        os.close(fd)
    return other


def storage_named(manager: bytes, name: bytes, length: int) -> torch.UntypedStorage:
    """On the other side: a storage that is shared by its name."""
    return storage_of_name(manager, name, length)
