"""Any number of descriptors as one: they wait in a socket whose other end is passed.

One message carries at most 253 descriptors (the kernel's SCM_MAX_FD).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence

from antifreeze.engine.wire.channel import pair

AT_ONCE = 250


@contextlib.contextmanager
def passed(descriptors: Sequence[int]) -> Iterator[int]:
    """A descriptor that stands for all of these; they stay the caller's."""
    ours, theirs = pair()
    with ours, theirs:
        theirs.setblocking(False)
        for start in range(0, len(descriptors), AT_ONCE):
            socket.send_fds(theirs, [b"-"], list(descriptors[start : start + AT_ONCE]))
        yield ours.fileno()


def receive_descriptors(passed: int) -> list[int]:
    """In the other process: all of them, in their order; closes the one that stood for them."""
    received: list[int] = []
    with socket.socket(fileno=passed) as ours, contextlib.suppress(BlockingIOError):
        ours.setblocking(False)
        while True:
            message, descriptors, _, _ = socket.recv_fds(ours, 1, AT_ONCE)
            received += descriptors
            if not message:
                break
    for fd in received:
        os.set_inheritable(fd, False)
    return received
