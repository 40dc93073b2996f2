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
from collections.abc import Sequence
from dataclasses import dataclass

from antifreeze.engine.backends import process
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.pool.lifecycle import Event, Life, after
from antifreeze.engine.wire.channel import Channel, ChannelClosed, pair
from antifreeze.engine.wire.messages import Born, Exited, Leave, Message, Settled, Unfit

STOP_DEADLINE_S = 2.0
# How long the stem may take to say how a worker ended, once it has.
VERDICT_DEADLINE_S = 1.0
BIRTH_DEADLINE_S = 60.0

# Held here until they are stopped: the collector may end the sockets of a pool before the iterator that would stop it.
_pools: set[Pool] = set()


@dataclass(frozen=True, slots=True)
class Heard:
    """A worker has said something."""

    worker: WorkerNo
    message: Message
    descriptors: list[int]


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker has ended, and nobody had asked it to."""

    worker: WorkerNo
    pid: int | None
    exitcode: int | None


@dataclass(frozen=True, slots=True)
class StemSaid:
    """A clean stem has settled, or cannot."""

    message: Settled | Unfit


class Worker:
    """One worker as the trainer sees it; also looks like a `multiprocessing.Process` to those who expect one."""

    daemon = True  # what torch's workers say; ours may have children all the same

    def __init__(self, number: WorkerNo, channel: Channel, pool: Pool) -> None:
        self.number = number
        self.name = f"antifreeze worker {number}"
        self.channel = channel
        self.life = Life.ASKED_FOR
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

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None and self.pidfd is not None:
            process.kill(self.pidfd, number)

    def __repr__(self) -> str:
        return f"<Worker {self.number} pid={self._known_pid} {self.life.name}>"


class Pool:
    """All workers that hang on one stem."""

    def __init__(self, stem: StemHandle, *, workers: int) -> None:
        self.stem = stem
        self.workers: list[Worker] = []
        self._stopped = False
        self._poll = select.poll()
        self._by_channel: dict[int, Worker] = {}
        self._by_pidfd: dict[int, Worker] = {}
        self._poll.register(stem.control.fileno(), select.POLLIN)
        self._poll.register(stem.pidfd, select.POLLIN)
        _pools.add(self)
        atexit.unregister(_stop_all)
        atexit.register(_stop_all)  # anew, to come before whatever our stem needs is ended
        for number in range(workers):
            self._ask_for(WorkerNo(number))

    def send(self, worker: WorkerNo, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send to one worker; if it is gone, its death will be noticed in the next wait."""
        channel = self.workers[worker].channel
        try:
            channel.send(message, descriptors)
        except ChannelClosed:
            return
        if channel.has_unsent:
            self._poll.modify(channel.fileno(), select.POLLIN | select.POLLOUT)

    def try_receive(self, worker: WorkerNo) -> Heard | None:
        """What this worker has said, without waiting: one call into the kernel instead of two."""
        try:
            received = self.workers[worker].channel.receive()
        except ChannelClosed:
            return None
        return None if received is None else Heard(worker, *received)

    def wait(self, *, deadline: float) -> list[Heard | Lost | StemSaid]:
        """Whatever happens next, or nothing if the deadline passes."""
        events: list[Heard | Lost | StemSaid] = []
        left = max(0.0, deadline - time.monotonic())
        for fd, mask in self._poll.poll(min(left, process.SLICE_S) * 1000):
            if (worker := self._by_channel.get(fd)) is not None:
                self._hear(worker, mask, events)
            elif (worker := self._by_pidfd.get(fd)) is not None:
                self._note_death(worker, events)
            else:
                self._listen_to_stem(events)
        return events

    def await_birth(self, worker: Worker, *, deadline: float) -> None:
        """Listen to the stem until it has brought this worker up."""
        ignored: list[Heard | Lost | StemSaid] = []
        poll = select.poll()
        poll.register(self.stem.control.fileno(), select.POLLIN)
        poll.register(self.stem.pidfd, select.POLLIN)
        while worker.known_pid is None and not self._stopped and time.monotonic() < deadline:
            poll.poll(process.SLICE_S * 1000)
            self._listen_to_stem(ignored, note_end=False)
            if self.stem.has_ended():
                return

    def stop(self) -> None:
        """End all workers and the stem: by asking, then, when time is up for all of them together, by force."""
        if self._stopped:
            return
        self._stopped = True
        deadline = time.monotonic() + STOP_DEADLINE_S
        for worker in self.workers:
            worker.life = after(worker.life, Event.STOP)
            self.send(worker.number, Leave())
        self._await_ends(deadline)
        for worker in self.workers:
            if worker.pidfd is not None and not process.has_ended(worker.pidfd):
                self.stem.kill_worker(worker.known_pid or -1, worker.pidfd)
        self._await_ends(time.monotonic() + process.SLICE_S)
        self.stem.stop(deadline=time.monotonic() + process.SLICE_S)
        self._close()

    def abandon(self) -> None:
        """In a child of the trainer: let go of our copies of the descriptors, and touch nothing else."""
        self._stopped = True
        self._close()

    def _ask_for(self, number: WorkerNo) -> None:
        ours, theirs = pair()
        worker = Worker(number, Channel(ours, blocking=False), self)
        self.workers.append(worker)
        self._by_channel[ours.fileno()] = worker
        self._poll.register(ours.fileno(), select.POLLIN)
        with theirs:
            self.stem.fork_worker(number, theirs)

    def _hear(self, worker: Worker, mask: int, events: list[Heard | Lost | StemSaid]) -> None:
        fd = worker.channel.fileno()
        try:
            if mask & select.POLLOUT:
                worker.channel.flush()
                if not worker.channel.has_unsent:
                    self._poll.modify(fd, select.POLLIN)
            while (received := worker.channel.receive()) is not None:
                events.append(Heard(worker.number, *received))
        except ChannelClosed:
            self._poll.unregister(fd)
            del self._by_channel[fd]
            # It is about to end. If it is not (user code can close any descriptor), it is of no use any more.
            if worker.pidfd is not None and process.wait_ended(
                [worker.pidfd], deadline=time.monotonic() + VERDICT_DEADLINE_S / 2
            ):
                self.stem.kill_worker(worker.known_pid or -1, worker.pidfd)

    def _note_death(self, worker: Worker, events: list[Heard | Lost | StemSaid]) -> None:
        assert worker.pidfd is not None
        self._poll.unregister(worker.pidfd)
        del self._by_pidfd[worker.pidfd]
        if worker.channel.fileno() in self._by_channel:
            self._hear(worker, select.POLLIN, events)
        deadline = time.monotonic() + VERDICT_DEADLINE_S
        while worker.exitcode is None and time.monotonic() < deadline and not self.stem.has_ended():
            self._listen_to_stem(events, wait_s=0.05)
        worker.life = after(worker.life, Event.EXIT)
        if worker.life is Life.LOST:
            events.append(Lost(worker.number, worker.known_pid, worker.exitcode))

    def _listen_to_stem(
        self, events: list[Heard | Lost | StemSaid], *, wait_s: float = 0.0, note_end: bool = True
    ) -> None:
        if wait_s:
            select.select([self.stem.control], [], [], wait_s)
        self.stem.control_flush()
        for message, descriptors in self.stem.receive():
            match message:
                case Born(number, pid):
                    self.workers[number].born(pid, descriptors[0])
                    self._by_pidfd[descriptors[0]] = self.workers[number]
                    self._poll.register(descriptors[0], select.POLLIN)
                case Exited(number, _, exitcode):
                    self.workers[number].exitcode = exitcode
                case Settled() | Unfit():
                    events.append(StemSaid(message))
                case _:
                    raise AssertionError(f"a stem cannot say {message!r}")
        if note_end and self.stem.has_ended():
            self._note_stem_end(events)

    def _note_stem_end(self, events: list[Heard | Lost | StemSaid]) -> None:
        """Workers that live go on without it; those that were not born yet never will be."""
        for fd in (self.stem.control.fileno(), self.stem.pidfd):
            self._poll.unregister(fd)
        for worker in self.workers:
            if worker.life is Life.ASKED_FOR:
                worker.life = after(worker.life, Event.EXIT)
                events.append(Lost(worker.number, None, None))

    def _await_ends(self, deadline: float) -> None:
        """Listen until all workers have ended, and the stem has said how, or until the deadline."""
        ignored: list[Heard | Lost | StemSaid] = []
        while time.monotonic() < deadline and not self.stem.has_ended():
            if all(worker.exitcode is not None for worker in self.workers):
                return
            self._listen_to_stem(ignored, wait_s=0.02, note_end=False)

    def _close(self) -> None:
        for worker in self.workers:
            worker.channel.close()
            if worker.pidfd is not None:
                os.close(worker.pidfd)
                worker.pidfd = None
        self.stem.close()
        _pools.discard(self)

    def __repr__(self) -> str:
        return f"<Pool {self.stem!r} {self.workers!r}>"


def _stop_all() -> None:
    for pool in list(_pools):
        pool.stop()


def _forget_in_child() -> None:
    for pool in list(_pools):
        pool.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
