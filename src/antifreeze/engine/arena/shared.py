"""Tensors that the program has shared on purpose: they arrive as the same memory, as with torch.

A worker's tensor is taken for one of these if its memory was shared before the worker began: then the trainer, or
another process, has it as well, and changes are meant to be seen there. Memory that a worker shares itself (as collate
functions do that are modelled on torch's) travels in the slot like any other.
"""

from __future__ import annotations

import os
import time

import torch
from torch.multiprocessing import reductions

from antifreeze.torch_side.tensors import share_by_descriptor

# With a slot and a long message there are as many descriptors as a channel takes at once.
MOST_SHARED = 6

_began_ns = 0
"""When this process became a worker, or last began to do what workers would have done; 0: it has done neither."""


def begin() -> None:
    """This process makes batches from now on, as a worker or in the place of one."""
    global _began_ns
    _began_ns = time.time_ns()


def descriptor_of(storage: torch.UntypedStorage) -> int | None:
    """The descriptor of memory that was shared before this worker began, which stays the storage's; else None.

    Files are stamped with a clock that may be some milliseconds behind: what a worker shares as soon as it has begun can
    be taken for older, and then arrives as with torch.
    """
    if not _began_ns or not storage.is_shared():
        return None
    try:
        fd = share_by_descriptor(storage)[0]
    except RuntimeError:  # shared by its file's name
        return None
    return fd if fd >= 0 and os.fstat(fd).st_ctime_ns <= _began_ns else None


def storage_of(fd: int) -> torch.UntypedStorage:
    """The storage over memory that a worker has sent: the one that there is, if it came before; closes the descriptor."""
    return reductions.rebuild_storage_fd(torch.UntypedStorage, _Received(fd), os.fstat(fd).st_size)  # type: ignore[no-any-return]


class _Received:
    """A descriptor in the form in which torch takes it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def detach(self) -> int:
        return self._fd
