"""What a process has received and sent over its TCP connections, which the kernel's count of its reads and writes lacks.

(`/proc/PID/io` counts `read` and `write`, and not `recv` and `send`: a worker that downloads looks as if it were blocked.)
A connection is taken over for a moment (`pidfd_getfd`) and asked. Where that is refused, there is nothing to tell.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct

from antifreeze.machine.reading import listing

_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
# Where the bytes that were acknowledged and received stand in `struct tcp_info`.
_BYTES_ACKED, _BYTES_END = 120, 136


def bytes_over_connections(pid: int) -> int:
    """Bytes sent and received over connections that this process has and we do not."""
    theirs = _sockets_of(pid)
    if not theirs:
        return 0
    shared = _sockets_of(os.getpid())  # a fork inherits connections, and what we do with them is no work of the child
    own = [fd for name, fd in theirs.items() if name not in shared]
    if not own:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = libc.syscall(_PIDFD_OPEN, pid, 0)
    if pidfd < 0:
        return 0
    try:
        return sum(_bytes_over(libc.syscall(_PIDFD_GETFD, pidfd, fd, 0)) for fd in own)
    finally:
        os.close(pidfd)


def _sockets_of(pid: int) -> dict[str, int]:
    """Descriptors of a process by the name of the socket behind them."""
    folder, found = f"/proc/{pid}/fd", {}
    for name in listing(folder):
        with contextlib.suppress(OSError):  # it has been closed since
            target = os.readlink(f"{folder}/{name}")
            if target.startswith("socket:"):
                found[target] = int(name)
    return found


def _bytes_over(fd: int) -> int:
    if fd < 0:
        return 0
    try:
        connection = socket.socket(fileno=fd)
    except OSError:  # of a kind that Python does not know
        os.close(fd)
        return 0
    with contextlib.suppress(OSError), connection:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_END)
        if len(told) == _BYTES_END:
            return sum(struct.unpack_from("QQ", told, _BYTES_ACKED))
    return 0
