"""The workers of one iterator: asks for them, hears from them, notices their deaths, and ends them all in time.

Everything is heard in one wait over all channels and process descriptors, with a deadline. A death is a process
descriptor that becomes readable; whatever the dead worker had sent before is heard first.

A worker that seems stuck can have a *hedge*: another process with its number that does the same work. One of the two is
kept; the other is *dismissed*, and its death is heard of like everything else.
"""

from __future__ import annotations

import atexit
import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from antifreeze.engine.arena.board import create as create_board
from antifreeze.engine.backends import interruptions, process
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.numbers import SeatNo, WorkerNo
from antifreeze.engine.pool.lifecycle import Event, Life, after
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.wire.channel import Channel, ChannelClosed, pair
from antifreeze.engine.wire.messages import Born, Exited, Leave, Message, Settled, Unfit
from antifreeze.errors import InternalError

# All workers are gone within two seconds: so long they are asked, the rest is for ending them by force.
STOP_DEADLINE_S = 1.7
# How long the stem may take to say how a worker ended, once it has.
VERDICT_DEADLINE_S = 1.0
# Messages of one worker that are taken in before others get their turn: each may bring a descriptor.
MOST_AT_ONCE = 16

# Held here until they are stopped: the collector may end the sockets of a pool before the iterator that would stop it.
_pools: set[Pool] = set()


class Heard(NamedTuple):
    """A worker has said something."""

    worker: Worker
    message: Message
    descriptors: list[int]


class Lost(NamedTuple):
    """A worker has ended, and nobody had asked it to."""

    worker: Worker
    pid: int | None
    exitcode: int | None


class Gone(NamedTuple):
    """A worker that was dismissed is dead."""

    worker: Worker


class StemSaid(NamedTuple):
    """A clean stem has settled, or cannot."""

    stem: StemHandle
    message: Settled | Unfit


Happening = Heard | Lost | Gone | StemSaid


class Pool:
    """All workers of one iterator, and the stems that they hang on."""

    def __init__(self, grow: Callable[[], StemHandle], *, workers: int) -> None:
        self._grow = grow
        self.workers: list[Worker] = []
        """By their number."""
        self.hedges: dict[WorkerNo, Worker] = {}
        self._dismissed: list[Worker] = []
        self._stems: list[StemHandle] = []
        """All that have ever been, the newest last: the lifelines of their workers are in our hands."""
        self.is_waiting = False
        self.is_abandoned = False
        self._stopped = False
        self._next_seat = 0
        self._happened: list[Happening] = []
        self._poll = select.poll()
        self._by_channel: dict[int, Worker] = {}
        self._by_pidfd: dict[int, Worker] = {}
        self._by_stem: dict[int, StemHandle] = {}
        self._awaited: Worker | None = None
        """The only one whose messages end a wait; None: all do."""
        self._take_stem(grow())
        try:
            for number in range(workers):
                self.workers.append(self._ask_for(WorkerNo(number)))
        except BaseException:
            self.stop()
            raise
        _pools.add(self)
        atexit.unregister(_stop_all)
        atexit.register(_stop_all)  # anew, to come before whatever our stem needs is ended

    @property
    def stem(self) -> StemHandle:
        """Where the next worker will come from: the newest one that lives."""
        return next((stem for stem in reversed(self._stems) if not stem.is_gone), self._stems[-1])

    @property
    def is_stopped(self) -> bool:
        """Whether the workers have been ended, or are another process's."""
        return self._stopped

    def send(self, worker: Worker, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send to one worker; if it is gone, its death will be noticed in the next wait."""
        channel = worker.channel
        try:
            channel.send(message, descriptors)
        except ChannelClosed:
            return
        if channel.has_unsent:
            self._listen_to(worker)

    def try_receive(self, worker: Worker) -> Heard | None:
        """What this worker has said, without waiting: one call into the kernel instead of two."""
        self.is_waiting = False
        if self._happened:
            return None  # first what has happened before
        try:
            received = worker.channel.receive()
        except ChannelClosed:
            return None
        return None if received is None else Heard(worker, *received)

    def wait(self, worker: Worker | None, *, deadline: float) -> list[Happening]:
        """Whatever happens next, or nothing if the deadline passes.

        If only one worker's messages are of use now, the others' stay where they are: to be woken for each of them costs
        both sides more than a small batch does. Deaths are noticed in any case.
        """
        left = max(0.0, deadline - time.monotonic())
        if not self._happened:
            self._await(worker)
            self.is_waiting = True  # an interrupt in here loses nothing
            ready = self._poll.poll(min(left, process.SLICE_S) * 1000)
            self.is_waiting = False
            self._take_in(ready)
        happened, self._happened = self._happened, []
        return happened

    def put_back(self, happened: Sequence[Happening]) -> None:
        """These have not been dealt with: they are what happens next, if anything does."""
        if self._stopped:
            _close_descriptors(happened)
        else:
            self._happened[:0] = happened

    def await_birth(self, worker: Worker, *, deadline: float) -> None:
        """Take in what happens until this worker has been born; all of it is kept for the next wait."""
        while worker.known_pid is None and worker.life is Life.ASKED_FOR and time.monotonic() < deadline:
            if self._stopped:
                return
            self._take_in(self._poll.poll(process.SLICE_S * 1000))

    def replace(self, number: WorkerNo) -> Worker:
        """Another worker in the place of one that is lost; from another stem, if theirs is gone."""
        lost = self.workers[number]
        if lost.life is not Life.LOST:
            raise InternalError(f"{lost!r} is not lost")
        self._forget(lost)
        self.workers[number] = self._ask_for(number)
        return self.workers[number]

    def change_stem(self, stem: StemHandle) -> None:
        """From now on, workers come from this stem; those that there are stay with theirs."""
        self._take_stem(stem)

    def hedge(self, number: WorkerNo) -> Worker:
        """A second worker with this number, beside the one that there is."""
        if number in self.hedges:
            raise InternalError(f"worker {number} has a hedge already")
        self.hedges[number] = self._ask_for(number)
        return self.hedges[number]

    def promote_hedge(self, number: WorkerNo) -> Worker:
        """The hedge is this number's worker from now on; the one that it stood beside is dismissed."""
        stuck, self.workers[number] = self.workers[number], self.hedges.pop(number)
        self.dismiss(stuck)
        return stuck

    def drop_hedge(self, number: WorkerNo) -> Worker:
        """The hedge has not been needed: it is dismissed."""
        hedge = self.hedges.pop(number)
        self.dismiss(hedge)
        return hedge

    def dismiss(self, worker: Worker) -> None:
        """Nobody waits for this one any more: it is killed with all that it started. `Gone` says when it is dead."""
        worker.is_dismissed = True
        if worker.life is Life.LOST:
            self._forget(worker)
            self._happened.append(Gone(worker))
            return
        worker.life = after(worker.life, Event.STOP)
        self._dismissed.append(worker)
        self._stop_listening_to(worker)
        self._kill(worker)

    def ask_to_leave(self) -> None:
        """Tell all workers that nothing more is wanted of them."""
        self._await(None)  # one of them may be waiting for room to send in
        for worker in self._all():
            worker.life = after(worker.life, Event.STOP)
            self.send(worker, Leave())

    def stop(self, *, deadline: float | None = None) -> None:
        """End all workers and the stems: by asking, then, when time is up for all of them together, by force.

        What is interrupted can be called again.
        """
        if self._stopped:
            return
        try:
            deadline = deadline or time.monotonic() + STOP_DEADLINE_S
            self.ask_to_leave()
            self._await_ends(deadline)
        finally:
            for worker in self._all():
                self._kill(worker)
            # A stem that has brought up nobody yet is still importing, and hears nothing.
            grace_s = VERDICT_DEADLINE_S / 2 if any(worker.known_pid for worker in self._all()) else 0.0
            self._await_ends(time.monotonic() + grace_s)
            for stem in self._stems:
                stem.stop(deadline=time.monotonic() + grace_s)
            self._close()

    def abandon(self) -> None:
        """In a child of the trainer: let go of our copies of the descriptors, and touch nothing else."""
        self.is_abandoned = True
        self._close()

    def _all(self) -> Iterator[Worker]:
        yield from self.workers
        yield from self.hedges.values()
        yield from self._dismissed

    def _ask_for(self, number: WorkerNo) -> Worker:
        if self.stem.is_gone:
            self._take_stem(self._grow())
        seat = SeatNo(self._next_seat)
        self._next_seat += 1
        with interruptions.held():  # a signal must not cost us what we have just opened
            board = create_board()
            try:
                ours, theirs = pair()
            except BaseException:
                board.close()
                raise
            worker = Worker(number, seat, Channel(ours, blocking=False), board, self, self.stem)
            self._by_channel[ours.fileno()] = worker
            self._listen_to(worker)
            with theirs:
                self.stem.fork_worker(number, seat, theirs, board.segment.fd)
        return worker

    def _forget(self, worker: Worker) -> None:
        self._stop_listening_to(worker)
        worker.close()

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

    def _stop_listening_to(self, worker: Worker) -> None:
        fd = worker.channel.fileno()
        if self._by_channel.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _take_stem(self, stem: StemHandle) -> None:
        self._stems.append(stem)
        for fd in (stem.control.fileno(), stem.pidfd):
            self._by_stem[fd] = stem
            self._poll.register(fd, select.POLLIN)

    def _take_in(self, ready: list[tuple[int, int]]) -> None:
        """What has become readable, into what has happened."""
        for fd, mask in ready:
            if (worker := self._by_channel.get(fd)) is not None:
                self._hear(worker, mask)
            elif (worker := self._by_pidfd.get(fd)) is not None:
                self._note_death(worker)
            elif (stem := self._by_stem.get(fd)) is not None:
                self._listen_to_stem(stem)

    def _hear(self, worker: Worker, mask: int) -> None:
        try:
            if mask & select.POLLOUT:
                worker.channel.flush()
                if not worker.channel.has_unsent:
                    self._listen_to(worker)
            for _ in range(MOST_AT_ONCE):
                received = worker.channel.receive()
                if received is None:
                    break
                self._happened.append(Heard(worker, *received))
        except ChannelClosed:
            self._stop_listening_to(worker)
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
            self._happened.append(Lost(worker, worker.known_pid, worker.exitcode))
        elif worker in self._dismissed:
            self._note_gone(worker)

    def _note_gone(self, worker: Worker) -> None:
        self._dismissed.remove(worker)
        self._forget(worker)
        self._happened.append(Gone(worker))

    def _await_verdict(self, worker: Worker) -> None:
        """The stem says how a worker ended, right after it has."""
        deadline = time.monotonic() + VERDICT_DEADLINE_S
        while worker.exitcode is None and not worker.stem.is_gone and time.monotonic() < deadline:
            _wait_readable(worker.stem.control.fileno(), timeout_s=VERDICT_DEADLINE_S / 10)
            self._listen_to_stem(worker.stem)

    def _listen_to_stem(self, stem: StemHandle) -> None:
        stem.control_flush()
        by_seat = {worker.seat: worker for worker in self._all()}
        for message, descriptors in stem.receive():
            match message:
                case Born(seat, pid) if seat in by_seat:
                    self._note_birth(by_seat[seat], pid, descriptors[0])
                case Exited(seat, _, exitcode) if seat in by_seat:
                    by_seat[seat].exitcode = exitcode
                case Born() | Exited():  # of one that has been replaced since
                    for fd in descriptors:
                        os.close(fd)
                case Settled() | Unfit():
                    self._happened.append(StemSaid(stem, message))
                case _:
                    raise InternalError(f"a stem cannot say {message!r}")
        if not stem.is_gone and stem.has_ended():
            self._note_stem_end(stem)

    def _note_birth(self, worker: Worker, pid: int, pidfd: int) -> None:
        worker.born(pid, pidfd)
        self._by_pidfd[pidfd] = worker
        self._poll.register(pidfd, select.POLLIN)
        if worker.channel.fileno() not in self._by_channel:  # it has closed its channel already, or was dismissed
            self._kill(worker)

    def _note_stem_end(self, stem: StemHandle) -> None:
        """Workers that live go on without it; those that were not born yet never will be."""
        stem.is_gone = True
        for fd in (stem.control.fileno(), stem.pidfd):
            self._poll.unregister(fd)
            del self._by_stem[fd]
        for worker in list(self._all()):
            if worker.stem is not stem or worker.known_pid is not None:
                continue
            if worker.life is Life.ASKED_FOR:
                worker.life = after(worker.life, Event.EXIT)
                self._happened.append(Lost(worker, None, None))
            elif worker in self._dismissed:
                self._note_gone(worker)

    def _kill(self, worker: Worker) -> None:
        if worker.pidfd is None or worker.known_pid is None or process.has_ended(worker.pidfd):
            return
        if worker.stem.is_gone:
            process.kill_group(worker.known_pid)  # it has not ended, so the number is still its own
        worker.stem.kill_worker(worker.known_pid, worker.pidfd)

    def _await_ends(self, deadline: float) -> None:
        """Take in what happens until all workers have ended, or until the deadline; nobody wants to hear it any more."""
        while time.monotonic() < deadline and not all(self._is_over(worker) for worker in self._all()):
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
        for worker in self._all():
            worker.close()
        for stem in self._stems:
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
    """At the end of the program: all loaders together get the time that one of them would."""
    with interruptions.held():
        deadline = time.monotonic() + STOP_DEADLINE_S
        for pool in list(_pools):
            pool.ask_to_leave()
        for pool in list(_pools):
            pool.stop(deadline=deadline)


def _forget_in_child() -> None:
    for pool in list(_pools):
        pool.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
