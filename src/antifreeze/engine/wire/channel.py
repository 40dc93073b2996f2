"""One connection between two processes: whole messages, or none.

The socket keeps message boundaries (SOCK_SEQPACKET), so there is no such thing as half a message: a peer that dies or
stops while it sends has sent nothing. The trainer's side never blocks: what the socket does not take at once waits in
an outbox. The other side blocks for at most a slice at a time.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from itertools import starmap
from typing import Any

from antifreeze.engine.arena import segment as memory
from antifreeze.engine.wire.messages import Message, decode, encode
from antifreeze.errors import ArenaError

# One page. Larger contents (long index lists, long tracebacks) go into anonymous memory that is sent along.
LARGEST = 4096
MOST_DESCRIPTORS = 250
# How long a worker or a stem sits in one receive or send; it is only there so that no wait is endless.
SLICE_S = 5
PAUSE_S = 0.01
_ENCLOSED = b"\xaf"
_INTS = array.array("i")
# A plain number: an operation on a flag of `enum` costs a microsecond.
_CUT_OFF = int(socket.MSG_CTRUNC)
_run_out = deque[object](maxlen=0).extend
_ANCILLARY_BYTES = socket.CMSG_SPACE(8 * _INTS.itemsize) if hasattr(socket, "CMSG_SPACE") else 0
_MANY_ANCILLARY_BYTES = socket.CMSG_SPACE(MOST_DESCRIPTORS * _INTS.itemsize) if hasattr(socket, "CMSG_SPACE") else 0


_THE_END = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF)
# Too many descriptors of this user are on their way, or the kernel has no memory for buffers: both pass.
_NO_ROOM_NOW = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)


class ChannelClosed(Exception):
    """The other side is gone."""


class Descriptors(list[Any]):
    """Open descriptors that no other object owns yet: all that have not been popped are closed with this list.

    A signal handler that raises while a message is taken in drops this list with the frames, and nothing stays open.
    Before `unpack`, the only element is what `recvmsg` returned.
    """

    def unpack(self) -> None:
        """Replace what `recvmsg` returned by the descriptors in it."""
        self[:] = _descriptors(self[0][1])

    def close(self) -> None:
        """Close what has not been popped."""
        if self and isinstance(self[0], tuple):
            self.unpack()
        closing = map(os.close, list(self))
        # From here on one function is called, which is not written in Python: no signal handler runs before it is done.
        del self[:]
        _run_out(closing)

    def first(self) -> Descriptors:
        """The first one, which is owned by what is returned from now on."""
        first = Descriptors()
        first[:], self[:1] = self[:1], []  # this calls nothing, so nothing can come in between
        return first

    def __del__(self) -> None:
        if self:
            self.close()


class Channel:
    """One end of a connection."""

    def __init__(self, sock: socket.socket, *, blocking: bool, many_descriptors: bool = False) -> None:
        self._socket = sock
        self._ancillary = _MANY_ANCILLARY_BYTES if many_descriptors else _ANCILLARY_BYTES
        # Arguments of `recvmsg`, as `starmap` takes them.
        self._how = ((LARGEST, self._ancillary, socket.MSG_CMSG_CLOEXEC),)
        self._inbox = Descriptors()
        """What `recvmsg` has returned, until it is known whether descriptors came with it."""
        self._owns_descriptors = not blocking
        self._outbox: deque[tuple[bytes, Descriptors]] = deque()
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        if blocking:
            slice_s = struct.pack("ll", SLICE_S, 0)
            sock.setblocking(True)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, slice_s)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, slice_s)
        else:
            sock.setblocking(False)

    def fileno(self) -> int:
        """For poll."""
        return self._socket.fileno()

    @property
    def has_unread(self) -> bool:
        """Whether there is something to receive; asking costs a sixth of an attempt that finds nothing."""
        return bool(self._poll.poll(0))

    @property
    def has_unsent(self) -> bool:
        """Whether messages wait for room in the socket."""
        return bool(self._outbox)

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send now, or as soon as there is room; the descriptors stay the caller's."""
        raw = encode(message)
        if len(raw) <= LARGEST and not self._outbox and self._try_send(raw, descriptors):
            return
        own = Descriptors()
        try:
            if len(raw) > LARGEST:
                memory.copy_into(own, [raw], "antifreeze-letter")
                raw = _ENCLOSED
            own.extend(
                map(os.dup, descriptors)
            )  # no signal handler runs between a descriptor and its place in the list
        except OSError as error:
            raise _what_it_means(error) from error
        self._outbox.append((raw, own))
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        while self._outbox:
            raw, descriptors = self._outbox[0]
            if not self._try_send(raw, descriptors):
                return
            self._outbox.popleft()
            descriptors.close()

    def send_all(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send, and wait in slices until the other side has room; for workers and stems, who may wait."""
        self.send(message, descriptors)
        while self._outbox:
            time.sleep(PAUSE_S)  # the socket has waited for a slice already, unless it is the kernel that has no room
            self.flush()

    def receive(self) -> tuple[Message, list[int]] | None:
        """The next message and its descriptors (the caller's from now on); None: nothing has come (in this slice).

        On the trainer's side the descriptors are `Descriptors`: a caller that keeps one pops it.
        """
        inbox = self._inbox
        if not inbox:
            try:
                self._take_in(inbox)
            except (BlockingIOError, InterruptedError):
                return None
            except OSError as error:
                raise _what_it_means(error) from error
        raw, ancillary, flags, _ = inbox[0]
        if not ancillary and not flags & _CUT_OFF:
            inbox.clear()
            if not raw:
                raise ChannelClosed("end of file")
            return decode(raw), []
        self._inbox = Descriptors()  # the old one is owned by this call now
        inbox.unpack()
        if flags & _CUT_OFF:
            raise _no_descriptors()
        if raw == _ENCLOSED:
            letter = inbox.first()
            raw = memory.content_of(letter[0])
        message = decode(raw)
        if self._owns_descriptors:
            return message, inbox
        descriptors = list(inbox)
        inbox.clear()
        return message, descriptors

    def _take_in(self, inbox: Descriptors) -> None:
        # `starmap` and `extend` call `recvmsg` without Python in between, so that no signal handler can run before what it
        # returns is in the list: a handler that raised there would leave descriptors open whose numbers are lost.
        try:
            inbox.extend(starmap(self._socket.recvmsg, self._how))
        except ConnectionResetError:
            # Said once, when the other side is gone with messages of ours unread; what it had sent comes after it.
            inbox.extend(starmap(self._socket.recvmsg, self._how))

    def hang_up(self) -> None:
        """Receive nothing more; ends a wait for this channel in another thread. What is sent still arrives."""
        with contextlib.suppress(OSError):  # it is closed, or the other side is
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close this end, and all that waits to be sent with it."""
        self._outbox.clear()
        self._inbox.close()
        self._socket.close()

    def _try_send(self, raw: bytes, descriptors: Sequence[int]) -> bool:
        try:
            if descriptors:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
                self._socket.sendmsg([raw], [rights], socket.MSG_NOSIGNAL)
            else:
                self._socket.send(raw, socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno in _NO_ROOM_NOW:
                return False
            raise _what_it_means(error) from error
        return True


def _what_it_means(error: OSError) -> Exception:
    if error.errno in _THE_END:
        return ChannelClosed(str(error))
    return _no_descriptors() if error.errno in (errno.EMFILE, errno.ENFILE) else error


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends; wrap each in a Channel in the process that uses it."""
    try:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise _no_descriptors() from error


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    return found.tolist()


def _no_descriptors() -> ArenaError:
    return ArenaError(
        "Too many open files: this process has no descriptor left to talk to its workers",
        why="its limit on open files is reached",
        try_="close files that are no longer needed, or raise the limit: ulimit -n 4096",
    )
