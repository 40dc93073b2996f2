"""The workers of one iterator: asks for them, hears from them, notices their deaths, and ends them all in time.

Everything is heard in one wait over all channels and process descriptors, with a deadline. A death is a process
descriptor that becomes readable; whatever the dead worker had sent before is heard first.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import time
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from antifreeze.engine.arena.board import Board
from antifreeze.engine.arena.board import create as create_board
from antifreeze.engine.backends import process
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.pool.lifecycle import Event, Life, after
from antifreeze.engine.wire.channel import Channel, ChannelClosed, pair
from antifreeze.engine.wire.messages import Born, Exited, Leave, Message, Settled, Unfit
from antifreeze.errors import InternalError

STOP_DEADLINE_S = 2.0
# How long the stem may take to say how a worker ended, once it has.
VERDICT_DEADLINE_S = 1.0
BIRTH_DEADLINE_S = 60.0
# Messages of one worker that are taken in before others get their turn: each may bring a descriptor.
MOST_AT_ONCE = 16

# Held here until they are stopped: the collector may end the sockets of a pool before the iterator that would stop it.
_pools: set[Pool] = set()


class Heard(NamedTuple):
    """A worker has said something."""

    worker: WorkerNo
    message: Message
    descriptors: list[int]


class Lost(NamedTuple):
    """A worker has ended, and nobody had asked it to."""

    worker: WorkerNo
    pid: int | None
    exitcode: int | None


class StemSaid(NamedTuple):
    """A clean stem has settled, or cannot."""

    message: Settled | Unfit


Happening = Heard | Lost | StemSaid


class Worker:
    """One worker as the trainer sees it; also looks like a `multiprocessing.Process` to those who expect one."""

    daemon = True  # what torch's workers say; ours may have children all the same

    def __init__(self, number: WorkerNo, channel: Channel, board: Board, pool: Pool, stem: StemHandle) -> None:
        self.number = number
        self.name = f"antifreeze worker {number}"
        self.channel = channel
        self.life = Life.ASKED_FOR
        self.stem = stem
        self.board = board
        self.exitcode: int | None = None
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
        """Ask the process to end, as multiprocessing does it: by SIGTERM."""
        self._signal(signal.SIGTERM)

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
        return f"<Worker {self.number} pid={self._known_pid} {self.life.name}>"


class Pool:
    """All workers that hang on one stem."""

    def __init__(self, grow: Callable[[], StemHandle], *, workers: int) -> None:
        self._grow = grow
        self.stem = grow()
        self._past_stems: list[StemHandle] = []
        """Gone, but the lifelines of their workers are still in our hands."""
        self.workers: list[Worker] = []
        self.is_waiting = False
        self.is_abandoned = False
        self._stopped = False
        self._happened: list[Happening] = []
        self._poll = select.poll()
        self._by_channel: dict[int, Worker] = {}
        self._by_pidfd: dict[int, Worker] = {}
        self._awaited: Worker | None = None
        """The only one whose messages end a wait; None: all do."""
        self._listen_for(self.stem)
        try:
            for number in range(workers):
                self._ask_for(WorkerNo(number))
        except BaseException:
            self.stop()
            raise
        _pools.add(self)
        atexit.unregister(_stop_all)
        atexit.register(_stop_all)  # anew, to come before whatever our stem needs is ended

    def send(self, worker: WorkerNo, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send to one worker; if it is gone, its death will be noticed in the next wait."""
        channel = self.workers[worker].channel
        try:
            channel.send(message, descriptors)
        except ChannelClosed:
            return
        if channel.has_unsent:
            self._listen_to(self.workers[worker])

    def try_receive(self, worker: WorkerNo) -> Heard | None:
        """What this worker has said, without waiting: one call into the kernel instead of two."""
        self.is_waiting = False
        if self._happened:
            return None  # first what has happened before
        try:
            received = self.workers[worker].channel.receive()
        except ChannelClosed:
            return None
        return None if received is None else Heard(worker, *received)

    def wait(self, worker: WorkerNo | None, *, deadline: float) -> list[Happening]:
        """Whatever happens next, or nothing if the deadline passes.

        If only one worker's messages are of use now, the others' stay where they are: to be woken for each of them costs
        both sides more than a small batch does. Deaths are noticed in any case.
        """
        left = max(0.0, deadline - time.monotonic())
        if not self._happened:
            self._await(None if worker is None else self.workers[worker])
            self.is_waiting = True  # an interrupt in here loses nothing
            ready = self._poll.poll(min(left, process.SLICE_S) * 1000)
            self.is_waiting = False
            self._take_in(ready)
        happened, self._happened = self._happened, []
        return happened

    def put_back(self, happened: Sequence[Happening]) -> None:
        """These have not been dealt with: they are what happens next."""
        self._happened[:0] = happened

    def await_birth(self, worker: Worker, *, deadline: float) -> None:
        """Take in what happens until this worker has been born; all of it is kept for the next wait."""
        while worker.known_pid is None and worker.life is Life.ASKED_FOR and time.monotonic() < deadline:
            if self._stopped:
                return
            self._take_in(self._poll.poll(process.SLICE_S * 1000))

    def replace(self, number: WorkerNo) -> None:
        """Another worker in the place of one that is lost; from another stem, if theirs is gone."""
        lost = self.workers[number]
        if lost.life is not Life.LOST:
            raise InternalError(f"{lost!r} is not lost")
        if lost.channel.fileno() in self._by_channel:
            self._poll.unregister(lost.channel.fileno())
            del self._by_channel[lost.channel.fileno()]
        lost.close()
        if self.stem.is_gone:
            self._past_stems.append(self.stem)
            self.stem = self._grow()
            self._listen_for(self.stem)
        self._ask_for(number)

    def stop(self) -> None:
        """End all workers and the stem: by asking, then, when time is up for all of them together, by force.

        What is interrupted can be called again.
        """
        if self._stopped:
            return
        try:
            deadline = time.monotonic() + STOP_DEADLINE_S
            self._await(None)  # one of them may be waiting for room to send in
            for worker in self.workers:
                worker.life = after(worker.life, Event.STOP)
                self.send(worker.number, Leave())
            self._await_ends(deadline)
        finally:
            for worker in self.workers:
                self._kill(worker)
            # A stem that has brought up nobody yet is still importing, and hears nothing.
            grace_s = VERDICT_DEADLINE_S / 2 if any(worker.known_pid for worker in self.workers) else 0.0
            self._await_ends(time.monotonic() + grace_s)
            for stem in (*self._past_stems, self.stem):
                stem.stop(deadline=time.monotonic() + grace_s)
            self._close()

    def abandon(self) -> None:
        """In a child of the trainer: let go of our copies of the descriptors, and touch nothing else."""
        self.is_abandoned = True
        self._close()

    def _ask_for(self, number: WorkerNo) -> None:
        board = create_board()
        try:
            ours, theirs = pair()
        except BaseException:
            board.close()
            raise
        worker = Worker(number, Channel(ours, blocking=False), board, self, self.stem)
        if number < len(self.workers):
            self.workers[number] = worker
        else:
            self.workers.append(worker)
        self._by_channel[ours.fileno()] = worker
        self._listen_to(worker)
        with theirs:
            self.stem.fork_worker(number, theirs, board.segment.fd)

    def _await(self, worker: Worker | None) -> None:
        """From now on, this worker's messages end a wait; None: everybody's."""
        before = self._awaited
        if worker is before:
            return
        self._awaited = worker
        if before is None or worker is None:
            for each in self._by_channel.values():
                self._listen_to(each)
        else:
            self._listen_to(before)
            self._listen_to(worker)

    def _listen_to(self, worker: Worker) -> None:
        fd = worker.channel.fileno()
        if fd in self._by_channel:  # else there is nothing more to hear from it
            listens = self._awaited is None or self._awaited is worker
            sends = worker.channel.has_unsent
            self._poll.register(fd, (select.POLLIN if listens else 0) | (select.POLLOUT if sends else 0))

    def _listen_for(self, stem: StemHandle) -> None:
        self._poll.register(stem.control.fileno(), select.POLLIN)
        self._poll.register(stem.pidfd, select.POLLIN)

    def _take_in(self, ready: list[tuple[int, int]]) -> None:
        """What has become readable, into what has happened."""
        for fd, mask in ready:
            if (worker := self._by_channel.get(fd)) is not None:
                self._hear(worker, mask)
            elif (worker := self._by_pidfd.get(fd)) is not None:
                self._note_death(worker)
            else:
                self._listen_to_stem()

    def _hear(self, worker: Worker, mask: int) -> None:
        fd = worker.channel.fileno()
        try:
            if mask & select.POLLOUT:
                worker.channel.flush()
                if not worker.channel.has_unsent:
                    self._listen_to(worker)
            for _ in range(MOST_AT_ONCE):
                received = worker.channel.receive()
                if received is None:
                    break
                self._happened.append(Heard(worker.number, *received))
        except ChannelClosed:
            self._poll.unregister(fd)
            del self._by_channel[fd]
            # It is about to end. If it is not (user code can close any descriptor), it is of no use any more.
            if worker.pidfd is not None and process.wait_ended(
                [worker.pidfd], deadline=time.monotonic() + VERDICT_DEADLINE_S / 2
            ):
                self._kill(worker)

    def _note_death(self, worker: Worker) -> None:
        assert worker.pidfd is not None
        self._poll.unregister(worker.pidfd)
        del self._by_pidfd[worker.pidfd]
        heard_before = -1
        while worker.channel.fileno() in self._by_channel and len(self._happened) != heard_before:
            heard_before = len(self._happened)
            self._hear(worker, select.POLLIN)  # all that it has sent; the end of file may come late, or never
        self._await_verdict(worker)
        worker.life = after(worker.life, Event.EXIT)
        if worker.life is Life.LOST:
            self._happened.append(Lost(worker.number, worker.known_pid, worker.exitcode))

    def _await_verdict(self, worker: Worker) -> None:
        """The stem says how a worker ended, right after it has."""
        deadline = time.monotonic() + VERDICT_DEADLINE_S
        while worker.exitcode is None and not worker.stem.is_gone and time.monotonic() < deadline:
            _wait_readable(self.stem.control.fileno(), timeout_s=VERDICT_DEADLINE_S / 10)
            self._listen_to_stem()

    def _listen_to_stem(self) -> None:
        self.stem.control_flush()
        for message, descriptors in self.stem.receive():
            match message:
                case Born(number, pid):
                    self._note_birth(self.workers[number], pid, descriptors[0])
                case Exited(number, pid, exitcode):
                    if self.workers[number].known_pid == pid:  # else it has been replaced since
                        self.workers[number].exitcode = exitcode
                case Settled() | Unfit():
                    self._happened.append(StemSaid(message))
                case _:
                    raise InternalError(f"a stem cannot say {message!r}")
        if not self.stem.is_gone and self.stem.has_ended():
            self._note_stem_end()

    def _note_birth(self, worker: Worker, pid: int, pidfd: int) -> None:
        worker.born(pid, pidfd)
        self._by_pidfd[pidfd] = worker
        self._poll.register(pidfd, select.POLLIN)
        if worker.channel.fileno() not in self._by_channel:  # it has closed its channel already
            self._kill(worker)

    def _note_stem_end(self) -> None:
        """Workers that live go on without it; those that were not born yet never will be."""
        self.stem.is_gone = True
        for fd in (self.stem.control.fileno(), self.stem.pidfd):
            self._poll.unregister(fd)
        for worker in self.workers:
            if worker.life is Life.ASKED_FOR:
                worker.life = after(worker.life, Event.EXIT)
                self._happened.append(Lost(worker.number, None, None))

    def _kill(self, worker: Worker) -> None:
        if worker.pidfd is None or worker.known_pid is None or process.has_ended(worker.pidfd):
            return
        if worker.stem.is_gone:
            process.kill_group(worker.known_pid)  # it has not ended, so the number is still its own
        worker.stem.kill_worker(worker.known_pid, worker.pidfd)

    def _await_ends(self, deadline: float) -> None:
        """Take in what happens until all workers have ended, or until the deadline; nobody wants to hear it any more."""
        while time.monotonic() < deadline and not all(self._is_over(worker) for worker in self.workers):
            self._take_in(self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
            _close_descriptors(self._happened)
            self._happened.clear()

    def _is_over(self, worker: Worker) -> bool:
        if worker.life in (Life.LOST, Life.GONE):
            return True
        return worker.known_pid is None and worker.stem.is_gone

    def _close(self) -> None:
        self._stopped = True
        _close_descriptors(self._happened)
        self._happened.clear()
        for worker in self.workers:
            worker.close()
        for stem in (*self._past_stems, self.stem):
            stem.close()
        _pools.discard(self)

    def __repr__(self) -> str:
        return f"<Pool {self.stem!r} {self.workers!r}>"


def _close_descriptors(happened: Sequence[Happening]) -> None:
    """Nobody wants to hear these any more."""
    for happening in happened:
        if isinstance(happening, Heard):
            for fd in happening.descriptors:
                os.close(fd)


def _wait_readable(fd: int, *, timeout_s: float) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(timeout_s * 1000)


def _stop_all() -> None:
    for pool in list(_pools):
        pool.stop()


def _forget_in_child() -> None:
    for pool in list(_pools):
        pool.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
