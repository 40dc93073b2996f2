"""The workers of one iterator: asks for them, hears from them, notices their deaths, and ends them all in time.

Everything is heard in one wait over all channels and process descriptors, with a deadline. A death is a process
descriptor that becomes readable; whatever the dead worker had sent before is heard first.

A worker that seems stuck can have a *hedge*: another process with its number that does the same work. One of the two is
kept; the other is *dismissed*, and its death is heard of like everything else.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator, Sequence

from antifreeze import machine
from antifreeze.engine.arena.board import create as create_board
from antifreeze.engine.backends import interruptions, process
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.backends.idle_watch import IdleWatch
from antifreeze.engine.numbers import SeatNo, WorkerNo
from antifreeze.engine.pool import ending
from antifreeze.engine.pool.happenings import (
    Gone,
    Happening,
    Heard,
    Lost,
    StemSaid,
    close_all,
    close_descriptors,
)
from antifreeze.engine.pool.lifecycle import Event, Life, after
from antifreeze.engine.pool.lines import Lines, wait_readable
from antifreeze.engine.pool.stems import Stems
from antifreeze.engine.pool.worker import Worker
from antifreeze.engine.turns import Turn, new_turn
from antifreeze.engine.wire.channel import Channel, ChannelClosed, pair
from antifreeze.engine.wire.messages import Born, Exited, Leave, Message, Unborn, Unfit
from antifreeze.errors import ArenaError, InternalError

# How long the stem may take to say how a worker ended, once it has.
VERDICT_DEADLINE_S = 1.0
# A worker that has left its loop has as long as torch gives it for the rest, unless it has done nothing for a while.
FINALIZERS_S, FINALIZERS_IDLE_S = 5.0, 1.0
# Messages of one worker that are taken in before others get their turn: each may bring a descriptor.
MOST_AT_ONCE = 16
# How long a thread that asks for a worker's pid waits at a time for the thread that is hearing of births.
BIRTH_SLICE_S = 0.05


class Pool:
    """All workers of one iterator, and the stems that they hang on."""

    def __init__(self, grow: Callable[[], StemHandle], *, workers: int, turn: Turn | None = None) -> None:
        """`turn`: the lock of the iterator; its threads hold it whenever they use the pool."""
        self.workers: list[Worker] = []
        """By their number."""
        self.hedges: dict[WorkerNo, Worker] = {}
        self._dismissed: list[Worker] = []
        self._stems = Stems(grow)
        self.is_waiting = False
        self.is_abandoned = False
        self._turn = turn or new_turn()
        self._is_asked_to_stop = False
        self._is_leaving = False
        """Whether workers have been told to leave: what cannot be received from one is not needed."""
        self._stopped = self._is_stopping = False
        self._next_seat = 0
        self._happened: list[Happening] = []
        self._lines = Lines()
        self._lines.add_stem(self._stems.grow())
        try:
            for number in range(workers):
                self.workers.append(self._ask_for(WorkerNo(number)))
        except BaseException:
            self.stop()
            raise
        ending.hold(self)

    @property
    def stem(self) -> StemHandle:
        """Where the next worker will come from."""
        return self._stems.current

    @property
    def is_stopped(self) -> bool:
        """Whether the workers have been ended or are to be ended now, or are another process's."""
        return self._stopped or self._is_asked_to_stop

    def send(self, worker: Worker, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send to one worker; if it is gone, its death will be noticed in the next wait."""
        channel = worker.channel
        try:
            channel.send(message, descriptors)
        except ChannelClosed:
            return
        if channel.has_unsent:
            self._lines.listen_to(worker)

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
        """Whatever happens next, or nothing if the deadline passes; if only one worker's messages are of use now: which."""
        left = max(0.0, deadline - time.monotonic())
        if not self._happened:
            self._lines.await_only(worker)
            self.is_waiting = True  # an interrupt in here loses nothing
            ready = self._lines.poll(min(left, process.SLICE_S) * 1000)
            self.is_waiting = False
            self._take_in(ready)
        happened, self._happened = self._happened, []
        return happened

    def put_back(self, happened: Sequence[Happening]) -> None:
        """These have not been dealt with: they are what happens next, if anything does."""
        if self._stopped:
            close_descriptors(happened)
        else:
            self._happened[:0] = happened

    def await_birth(self, worker: Worker, *, deadline: float) -> None:
        """Take in what happens until this worker has been born; all of it is kept for the next wait."""
        while worker.known_pid is None and worker.life is Life.ASKED_FOR and time.monotonic() < deadline:
            if self._stopped:
                return
            if self._turn.acquire(timeout=BIRTH_SLICE_S):  # else the thread that has it hears of the birth
                try:
                    self._take_in(self._lines.poll_apart(BIRTH_SLICE_S))
                finally:
                    self._turn.release()

    def replace(self, number: WorkerNo) -> Worker:
        """Another worker in the place of one that is lost; from another stem, if theirs is gone."""
        lost = self.workers[number]
        if lost.life is not Life.LOST:
            raise InternalError(f"{lost!r} is not lost")
        self._forget(lost)
        self.workers[number] = self._ask_for(number)
        return self.workers[number]

    def renew(self, number: WorkerNo) -> Worker:
        """Another worker in the place of one that waits to leave, and is told to. `Gone` says when it is dead."""
        spent = self.workers[number]
        # It can have said so before we have heard the stem say that it was born.
        self.await_birth(spent, deadline=time.monotonic() + VERDICT_DEADLINE_S)
        self.workers[number] = self._ask_for(number)
        self._let_go(spent)
        if not self._is_over(spent):
            self.send(spent, Leave())
        return self.workers[number]

    def await_end(self, spent: Worker) -> None:
        """Wait until one that was told to leave has left; it is killed if it takes too long."""
        if spent.pidfd is None or self._is_over(spent):
            return
        if process.wait_ended([spent.pidfd], deadline=time.monotonic() + VERDICT_DEADLINE_S / 2):
            self._kill(spent)
        else:
            self._note_death(spent)

    def give_up_stem(self, stem: StemHandle) -> None:
        """This one is stuck: it is killed, and whoever waits to be forked by it waits no more."""
        if not stem.is_gone:
            process.kill(stem.pidfd)
            self._note_stem_end(stem)

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
        self._let_go(worker)
        if not self._is_over(worker):
            self._kill(worker)

    def ask_to_leave(self) -> None:
        """Tell all workers that nothing more is wanted of them."""
        self._is_leaving = True
        for worker in self._all():
            worker.life = after(worker.life, Event.STOP)
            worker.board.close()  # a descriptor each, which may be needed to receive what they still say
            with contextlib.suppress(ArenaError, OSError):  # it is killed when the time is up
                self.send(worker, Leave())

    def hear_out(self, take: Callable[[Heard], None], *, deadline: float) -> None:
        """Tell all workers to leave; `take` is given what they say until they have left, or until the deadline."""
        self.ask_to_leave()
        while True:
            happened, self._happened = self._happened, []
            for happening in happened:
                if isinstance(happening, Heard):
                    take(happening)
            if time.monotonic() >= deadline or all(self._is_over(worker) for worker in self._all()):
                return
            self._take_in(self._lines.poll_apart(deadline - time.monotonic()))

    def ask_to_stop(self) -> None:
        """Tell workers to leave, or have the thread whose turn it is do that soon; any thread may call this."""
        if self._stopped:
            return
        self._is_asked_to_stop = True
        if self._turn.acquire(blocking=False):
            try:
                self.ask_to_leave()
            finally:
                self._turn.release()
        else:
            for worker in list(self._all()):
                worker.channel.hang_up()  # ends the wait of that thread

    def stop(self, *, deadline: float | None = None) -> None:
        """End all workers and the stems: by asking, then, when time is up for all of them together, by force.

        What is interrupted can be called again. If another thread does not give up its turn in time, it is for that thread
        to stop the pool.
        """
        if self._stopped:
            return
        deadline = deadline or ending.stop_deadline()
        if not self._turn.acquire(blocking=False):
            self.ask_to_stop()
            if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return
        try:
            if not self._is_stopping:  # else this thread is at it, and the collector has come upon the iterator
                self._stop(deadline)
        finally:
            self._turn.release()

    def _stop(self, deadline: float) -> None:
        # All of these are done, whatever one of them raises, the last one first.
        with contextlib.ExitStack() as last:
            last.callback(setattr, self, "_is_stopping", False)
            self._is_stopping = True
            last.callback(self._close)
            last.callback(self._end_stems)
            last.callback(self._kill_all)
            self._is_asked_to_stop = True
            self.ask_to_leave()
            self._await_ends(deadline)
            self._await_finalizers()

    def _kill_all(self) -> None:
        for worker in self._all():
            self._kill(worker)
        self._await_ends(time.monotonic() + self._grace_s())

    def _end_stems(self) -> None:
        self._stems.stop(grace_s=self._grace_s())

    def _grace_s(self) -> float:
        # A stem that has brought up nobody yet is still importing, and hears nothing.
        return VERDICT_DEADLINE_S / 2 if any(worker.known_pid for worker in self._all()) else 0.0

    def abandon(self) -> None:
        """In a child of the trainer: let go of our copies of the descriptors, and touch nothing else."""
        self.is_abandoned = True
        self._close()

    def _all(self) -> Iterator[Worker]:
        yield from self.workers
        yield from self.hedges.values()
        yield from self._dismissed

    def _ask_for(self, number: WorkerNo) -> Worker:
        if self.is_stopped:
            raise RuntimeError(ending.SHUT_DOWN)
        if self.stem.is_gone:
            self._lines.add_stem(self._stems.grow())
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
            self._lines.add_worker(worker)
            try:
                with theirs:
                    self.stem.fork_worker(number, seat, theirs, board.segment.fd)
            except BaseException:
                self._forget(worker)
                raise
        return worker

    def _let_go(self, worker: Worker) -> None:
        worker.is_dismissed = True
        if worker.life is Life.LOST:
            self._forget(worker)
            self._happened.append(Gone(worker))
            return
        worker.life = after(worker.life, Event.STOP)
        self._dismissed.append(worker)
        self._lines.drop_channel(worker)

    def _forget(self, worker: Worker) -> None:
        self._lines.drop_channel(worker)
        worker.close()

    def _take_in(self, ready: list[tuple[int, int]]) -> None:
        """What has become readable, into what has happened."""
        for fd, mask in ready:
            if (worker := self._lines.channels.get(fd)) is not None:
                if not self._hear(worker, mask):
                    return  # the others are still readable in the next wait
            elif (worker := self._lines.pidfds.get(fd)) is not None:
                self._note_death(worker)
            elif (stem := self._lines.stems.get(fd)) is not None:
                self._listen_to_stem(stem)

    def _hear(self, worker: Worker, mask: int) -> bool:
        """Receive what this worker has sent; False if descriptors are so few that this is to be dealt with first."""
        try:
            if mask & select.POLLOUT:
                worker.channel.flush()
                if not worker.channel.has_unsent:
                    self._lines.listen_to(worker)
            for _ in range(MOST_AT_ONCE):
                received = worker.channel.receive()
                if received is None:
                    break
                self._happened.append(Heard(worker, *received))
                if received[1] and machine.is_nearly_out_of_descriptors(max(received[1])):
                    return False
        except (ArenaError, OSError):
            if not self._is_leaving:
                raise
            self._lines.drop_channel(worker)
            worker.channel.close()
        except ChannelClosed:
            self._lines.drop_channel(worker)
            if worker.life is Life.LEAVING:  # as it was told to; finalizers of the user's may run in it now
                return True
            # It is about to end. If it is not (user code can close any descriptor), it is of no use any more.
            if (
                not (self._is_leaving or self.is_stopped)
                and worker.pidfd is not None
                and process.wait_ended([worker.pidfd], deadline=time.monotonic() + VERDICT_DEADLINE_S / 2)
            ):
                self._kill(worker)
        return True

    def _note_death(self, worker: Worker) -> None:
        assert worker.pidfd is not None
        self._lines.drop_pidfd(worker.pidfd)
        heard_before = -1
        while self._lines.can_hear(worker) and len(self._happened) != heard_before:
            heard_before = len(self._happened)
            self._hear(worker, select.POLLIN)  # all that it has sent; the end of file may come late, or never
        self._await_verdict(worker)
        if worker.exitcode is None and worker.stem.is_gone:
            worker.exitcode = process.reap_orphan(worker.pidfd)
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
            wait_readable(worker.stem.control.fileno(), timeout_s=VERDICT_DEADLINE_S / 10)
            self._listen_to_stem(worker.stem)

    def _listen_to_stem(self, stem: StemHandle) -> None:
        stem.control_flush()
        try:
            self._hear_stem(stem)
        except (ArenaError, OSError):  # no descriptor left for that of a process
            if not self._is_leaving:
                raise
        if not stem.is_gone and stem.has_ended():
            self._note_stem_end(stem)

    def _hear_stem(self, stem: StemHandle) -> None:
        by_seat = {worker.seat: worker for worker in self._all()}
        for message, descriptors in stem.receive():
            match message:
                case Born(seat, pid) if seat in by_seat:
                    with interruptions.held():  # a signal must not cost us the descriptor between its two owners
                        self._note_birth(by_seat[seat], pid, descriptors.pop())
                case Exited(seat, _, exitcode, released_locks) if seat in by_seat:
                    by_seat[seat].exitcode, by_seat[seat].released_locks = exitcode, released_locks
                case Unborn(seat, why) if seat in by_seat:
                    self._note_unborn(by_seat[seat], why)
                case Born() | Unborn() | Exited():  # of one that has been replaced since
                    close_all(descriptors)
                case Unfit():
                    self._happened.append(StemSaid(stem, message))
                case _:
                    raise InternalError(f"a stem cannot say {message!r}")

    def _note_birth(self, worker: Worker, pid: int, pidfd: int) -> None:
        worker.born(pid, pidfd)
        self._lines.add_birth(worker, pidfd)
        if not self._lines.can_hear(worker):  # it has closed its channel already, or was dismissed
            self._kill(worker)

    def _note_stem_end(self, stem: StemHandle) -> None:
        """Workers that live go on without it; those that were not born yet never will be."""
        stem.is_gone = True
        self._lines.drop_stem(stem)
        for worker in list(self._all()):
            if worker.stem is stem and worker.known_pid is None:
                self._note_unborn(worker, None)

    def _note_unborn(self, worker: Worker, why: str | None) -> None:
        """This worker will never come to life; None: its stem has ended."""
        if worker.life is Life.ASKED_FOR:
            worker.life = after(worker.life, Event.EXIT)
            self._happened.append(Lost(worker, None, None, why))
        elif worker in self._dismissed:
            self._note_gone(worker)
        elif why is not None and worker.life is Life.LEAVING:
            worker.life = after(worker.life, Event.EXIT)

    def _kill(self, worker: Worker) -> None:
        if worker.pidfd is None or worker.known_pid is None or process.has_ended(worker.pidfd):
            return
        if worker.stem.is_gone:
            # It has not ended, so the number is still its own.
            process.kill_group(worker.known_pid)
            process.kill_started_by(worker.known_pid)  # where it leads none, because of a terminal
        worker.stem.kill_worker(worker.known_pid, worker.pidfd)

    def _await_ends(self, deadline: float, among: Sequence[Worker] | None = None) -> None:
        """Take in what happens until all workers, or these, have ended, or until the deadline; nobody wants to hear it."""
        workers = list(self._all()) if among is None else among
        while time.monotonic() < deadline and not all(self._is_over(worker) for worker in workers):
            self._take_in(self._lines.poll_apart(deadline - time.monotonic()))
            close_descriptors(self._happened)
            self._happened.clear()

    def _await_finalizers(self) -> None:
        """Let those that have left their loop finish what the user's code does at the end of a process, if it works."""
        leaving = {
            worker: IdleWatch(worker.known_pid, limit_s=FINALIZERS_IDLE_S)
            for worker in self.workers
            if worker.known_pid is not None and not self._is_over(worker) and not self._lines.can_hear(worker)
        }
        deadline = time.monotonic() + FINALIZERS_S
        while leaving and time.monotonic() < deadline:
            self._await_ends(time.monotonic() + FINALIZERS_IDLE_S / 4, among=list(leaving))
            leaving = {
                worker: watch
                for worker, watch in leaving.items()
                if not self._is_over(worker) and not watch.is_idle_too_long()
            }

    def _is_over(self, worker: Worker) -> bool:
        if worker.life in (Life.LOST, Life.GONE):
            return True
        return worker.known_pid is None and worker.stem.is_gone

    def _close(self) -> None:
        self._stopped = True
        ending.let_go(self)
        with contextlib.ExitStack() as all_of_it:  # whatever one of them raises
            all_of_it.callback(self._stems.close)
            for worker in self._all():
                all_of_it.callback(worker.close)
            close_descriptors(self._happened)
            self._happened.clear()

    def __repr__(self) -> str:
        return f"<Pool {self.stem!r} {self.workers!r}>"
