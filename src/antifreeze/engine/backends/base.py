"""What an iterator needs of a place where workers live: the few things that a stem offers to the trainer.

`StemHandle` is the trainer's end of a stem. It has no thread, and blocks only in `stop`, up to a deadline.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from antifreeze.engine import forks
from antifreeze.engine.backends import process
from antifreeze.engine.numbers import SeatNo, WorkerNo
from antifreeze.engine.wire.channel import Channel, ChannelClosed
from antifreeze.engine.wire.messages import Fork, Kill, Leave, Message

_handles: weakref.WeakSet[StemHandle] = weakref.WeakSet()


class StemHandle:
    """The trainer's end of one stem, grown or clean."""

    _closed = True

    def __init__(
        self,
        *,
        kind: str,
        pid: int,
        pidfd: int,
        control: Channel,
        lifeline: tuple[int, ...],
        is_child: bool,
        find: Callable[[Any], Any],
    ) -> None:
        self.kind = kind
        """`grown` or `clean`."""
        self.pid = pid
        self.pidfd = pidfd
        self.control = control
        self.find = find
        """The trainer's object behind a reference in a result."""
        self.is_gone = False
        """Whether its end has been noticed."""
        self.risk: str | None = None
        """What the dataset holds that freezes forked workers which use it."""
        self.busy_locks: tuple[Any, ...] = ()
        """Locks of the dataset that somebody in the trainer held at the fork."""
        self.holds_queue = False
        """Whether the dataset holds a queue that processes share: what one takes out of it, no other one gets."""
        self.holds_pipe = False
        """Whether it holds a pipe or a socket: an answer that a worker leaves unread is taken for the next one's."""
        self._lifeline = lifeline
        self._is_child = is_child
        self._closed = False
        _handles.add(self)
        forks.call_in_children(_forget_in_child)

    def fork_worker(self, worker: WorkerNo, seat: SeatNo, channel: socket.socket, board: int) -> None:
        """Ask for a worker at the other end of this channel; `Born` comes back over the control channel."""
        with contextlib.suppress(ChannelClosed):  # its end is noticed by its pidfd, like every end
            self.control.send(Fork(worker, seat), [channel.fileno(), self._lifeline[0], board])

    def kill_worker(self, pid: int, pidfd: int) -> None:
        """Kill a worker and all that it started."""
        process.kill(pidfd)
        with contextlib.suppress(ChannelClosed):
            self.control.send(Kill(pid))

    def control_flush(self) -> None:
        """Send what had to wait for room."""
        with contextlib.suppress(ChannelClosed):
            self.control.flush()

    def receive(self) -> Iterator[tuple[Message, list[int]]]:
        """What the stem has said since we last listened."""
        with contextlib.suppress(ChannelClosed):  # its end is noticed by its pidfd
            while (received := self.control.receive()) is not None:
                yield received

    def has_ended(self) -> bool:
        """Whether the stem is gone."""
        return process.has_ended(self.pidfd)

    def stop(self, *, deadline: float) -> None:
        """End the stem and all that is left of its workers."""
        if self._closed:
            return
        # All of these are done, whatever one of them raises, the last one first.
        with contextlib.ExitStack() as last:
            last.callback(self.close)
            last.callback(self._kill)
            with contextlib.suppress(ChannelClosed):
                self.control.send(Leave())
            process.wait_ended([self.pidfd], deadline=deadline)

    def _kill(self) -> None:
        process.kill(self.pidfd)
        process.wait_ended([self.pidfd], deadline=time.monotonic() + process.SLICE_S)
        if self._is_child:
            process.reap(self.pid)
        else:  # the clean base may be gone
            process.reap_orphan(self.pidfd)

    def close(self) -> None:
        """Close our descriptors, and nothing else: without its lifeline, everything at the other end dies."""
        if self._closed:
            return
        self._closed = True
        _handles.discard(self)
        with contextlib.ExitStack() as all_of_it:  # whatever one of them raises
            for fd in (self.pidfd, *self._lifeline):
                all_of_it.callback(os.close, fd)
            self.control.close()

    def __del__(self) -> None:
        # The caller that asked for it was interrupted before it could be kept.
        if not self._closed:
            self.stop(deadline=0.0)

    def __repr__(self) -> str:
        return f"<StemHandle {self.kind} pid={self.pid}>"


def _forget_in_child() -> None:
    # A child of the trainer must hold no end of ours: the lifeline is the trainer's alone.
    for handle in list(_handles):
        handle.close()
