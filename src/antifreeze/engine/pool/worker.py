"""One worker as the trainer sees it; also looks like a `multiprocessing.Process` to those who expect one."""

from __future__ import annotations

import os
import signal
import time
import weakref
from typing import TYPE_CHECKING

from antifreeze.engine.arena.board import Board
from antifreeze.engine.backends import process
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.numbers import SeatNo, SlotNo, TicketNo, WorkerNo
from antifreeze.engine.pool.lifecycle import Event, Life, after
from antifreeze.engine.wire.channel import Channel

if TYPE_CHECKING:
    from antifreeze.engine.pool.pool import Pool

BIRTH_DEADLINE_S = 60.0


class Worker:
    """One process, from the moment it is asked for."""

    daemon = True  # what torch's workers say; ours may have children all the same

    def __init__(
        self, number: WorkerNo, seat: SeatNo, channel: Channel, board: Board, pool: Pool, stem: StemHandle
    ) -> None:
        self.number = number
        self.seat = seat
        self.name = f"antifreeze worker {number}"
        self.channel = channel
        self.life = Life.ASKED_FOR
        self.stem = stem
        self.board = board
        self.leases: dict[TicketNo, SlotNo | None] = {}
        """What it has been given to do, and where it may put it."""
        self.is_dismissed = False
        """Whether nobody waits for what it says any more."""
        self.exitcode: int | None = None
        self.released_locks = 0
        """How many locks that processes share were released on its behalf, when it had ended."""
        self.pidfd: int | None = None
        self._known_pid: int | None = None
        self._pool = weakref.ref(pool)

    @property
    def pid(self) -> int | None:
        """Its process id; waits for its birth if need be."""
        if self._known_pid is None and (pool := self._pool()) is not None:
            pool.await_birth(self, deadline=time.monotonic() + BIRTH_DEADLINE_S)
        return self._known_pid

    @property
    def known_pid(self) -> int | None:
        """Its process id, if we have heard of its birth."""
        return self._known_pid

    def born(self, pid: int, pidfd: int) -> None:
        """The stem has forked it."""
        self.life = after(self.life, Event.BIRTH)
        self._known_pid, self.pidfd = pid, pidfd

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.pid is not None and self.pidfd is not None and not process.has_ended(self.pidfd)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, for at most this long (for ever only if the caller says None, as with any process)."""
        deadline = time.monotonic() + timeout if timeout is not None else float("inf")
        while self.is_alive() and (left := deadline - time.monotonic()) > 0:
            process.wait_ended([self.pidfd or -1], deadline=time.monotonic() + min(left, process.SLICE_S))

    def terminate(self) -> None:
        """End the process; not by SIGTERM, as multiprocessing does it, which workers leave to the trainer."""
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """End the process."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go of all that we have of it."""
        self.channel.close()
        self.board.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None and self.pidfd is not None:
            process.kill(self.pidfd, number)

    def __repr__(self) -> str:
        return f"<Worker {self.number} seat={self.seat} pid={self._known_pid} {self.life.name}>"
