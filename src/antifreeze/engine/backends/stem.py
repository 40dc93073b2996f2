"""The stem: a quiet, single-threaded process that holds the dataset and forks workers whenever it is asked to.

This is its side of the story; `grown.py` and `clean.py` are how it comes to life. It does nothing of its own accord but
reap, and it leaves when the trainer says so or is gone; then all that it ever started goes with it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
import time
from dataclasses import dataclass
from multiprocessing import util
from multiprocessing.process import BaseProcess
from typing import NoReturn

from antifreeze import machine
from antifreeze.engine.arena.board import Board, open_text
from antifreeze.engine.backends import groups, process
from antifreeze.engine.numbers import SeatNo, WorkerNo
from antifreeze.engine.wire.channel import Channel, ChannelClosed
from antifreeze.engine.wire.messages import Born, Exited, Fork, Kill, Leave, Unborn
from antifreeze.engine.worker import locks
from antifreeze.engine.worker.birth import end_like_a_program, write_stacks
from antifreeze.engine.worker.main import run_worker
from antifreeze.engine.worker.mends import mend_all
from antifreeze.engine.worker.recipe import Recipe, SealedRecipe
from antifreeze.engine.worker.renewal import Heritage
from antifreeze.engine.worker.signals import quieten_signals, set_worker_signals
from antifreeze.engine.worker.threads import cap_threads

# A machine that has no process left for a moment (a compiler runs beside us, say) is asked again: so often, after so long.
FORK_ATTEMPTS, FORK_PAUSE_S = 4, 0.1
# The exit code of a worker that could not open its recipe: no other of this stem will be able to.
UNFIT = 0xAF
# Where memory runs out, a worker is ended before the trainer, unless the trainer has half of all memory more than it: a
# worker is replaced, and the trainer is not.
OOM_SCORE = 500


@dataclass(slots=True)
class _Child:
    seat: SeatNo
    pid: int
    pidfd: int
    board: Board | None
    """Kept only if there are locks that it may hold when it dies."""


class Stem:
    """Forks, reaps, and in the end takes everything with it."""

    def __init__(self, control: Channel, recipe: Recipe | SealedRecipe, *, trainer: int, trainer_pid: int) -> None:
        self._control = control
        self._recipe = recipe
        self._trainer = trainer
        self._trainer_pid = trainer_pid
        self._children: dict[int, _Child] = {}
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._poll.register(trainer, select.POLLIN)

    def run(self) -> None:
        """Serve until told to leave, or until there is nobody left to serve."""
        cap_threads(self._recipe.worker_threads)
        self._locks = locks.watch()
        self._group = groups.group_of_terminal(self._trainer_pid)
        gc.freeze()  # collections in workers would touch, and so copy, every page of the dataset
        self._mappings = machine.private_mappings()
        try:
            while self._serve():
                pass
        except ChannelClosed:
            pass
        finally:
            self._end_all()

    def _serve(self) -> bool:
        for fd, _ in self._poll.poll(process.SLICE_S * 1000):
            if fd == self._trainer:
                return False
            if fd in self._children:
                if self._reap(self._children.pop(fd)) == UNFIT:
                    return False
            elif not self._obey():
                return False
        return True

    def _obey(self) -> bool:
        received = self._control.receive()
        if received is None:
            return True
        match received:
            case (Fork(worker, seat), [channel, lifeline, board]):
                self._fork(worker, seat, channel, lifeline, board)
            case (Kill(pid), _) if any(child.pid == pid for child in self._children.values()):
                process.kill_group(pid)  # and the worker itself is killed by the trainer
            case (Leave(), _):
                return False
        return True

    def _fork(self, worker: WorkerNo, seat: SeatNo, channel: int, lifeline: int, board: int) -> None:
        """Bring up a worker, or say why that is not possible: those that live go on in any case."""
        kept: Board | None = None
        try:
            kept = Board.over(os.dup(board)) if self._locks else None
            heritage = Heritage(os.getpid(), time.monotonic(), self._mappings)
            pid = _fork_patiently()
            if pid == 0:
                if kept is not None:
                    locks.note_on(kept.locks)
                self._become_worker(worker, channel, lifeline, board, heritage)
            groups.enter_group(pid, self._group)
            pidfd = process.watch_child(pid)
        except OSError as error:
            if kept is not None:
                kept.close()
            self._control.send_all(Unborn(seat, f"{type(error).__name__}: {error}"))
            return
        finally:
            for fd in (channel, lifeline, board):
                os.close(fd)
        self._children[pidfd] = _Child(seat, pid, pidfd, kept)
        self._poll.register(pidfd, select.POLLIN)
        self._control.send_all(Born(seat, pid), [pidfd])

    def _become_worker(self, worker: WorkerNo, channel: int, lifeline: int, board: int, heritage: Heritage) -> NoReturn:
        code = 1
        try:
            groups.enter_group(0, self._group)
            if self._group is not None:
                process.take_orphans()
            groups.let_worker_lead_a_session(stems_group := os.getpgid(os.getppid()))
            groups.let_tracker_outlive_worker(stems_group)
            machine.raise_oom_score(OOM_SCORE)
            set_worker_signals()
            write_stacks(open_text(board), on_signal=process.STACK_SIGNAL)
            process.receive_signals()
            os.close(self._trainer)
            for pidfd in self._children:
                os.close(pidfd)
            own_lifeline = machine.open_again(lifeline, os.O_RDONLY | os.O_NONBLOCK)
            os.close(lifeline)
            process.die_with(own_lifeline)
            machine.give_own_offsets()
            body = _WorkerProcess(
                channel, board, self._recipe, worker, self._control, heritage, parent_pid=self._trainer_pid
            )
            inherited = frozenset(sys.modules)
            try:
                code = body._bootstrap(parent_sentinel=own_lifeline)  # type: ignore[attr-defined]
            except (
                Exception
            ):  # of what libraries do where threads end; an executor's that the trainer forked in joins itself
                util._flush_std_streams()  # type: ignore[attr-defined]  # else the last thing that multiprocessing does
            if self._recipe.identity.is_spawned:
                end_like_a_program(inherited)
        except BaseException:  # before the worker can report it by itself
            process.print_last_words()
        finally:
            os._exit(code)

    def _reap(self, child: _Child) -> int | None:
        self._poll.unregister(child.pidfd)
        os.close(child.pidfd)
        process.kill_group(child.pid)  # what it started and did not end itself
        exitcode = process.reap(child.pid)
        self._end_orphans()
        self._control.send_all(Exited(child.seat, child.pid, exitcode, self._release_locks_of(child)))
        return exitcode

    def _release_locks_of(self, dead: _Child) -> int:
        if dead.board is None:
            return 0
        others = (child.board.locks for child in self._children.values() if child.board and child is not dead)
        return self._locks.release_for(dead.board.locks, others)

    def _end_all(self) -> None:
        for child in self._children.values():
            process.kill_group(child.pid)
            process.kill(child.pidfd)  # it may have gone to another group
        if self._locks or self._group is not None:
            deadline = time.monotonic() + process.SLICE_S
            alive = process.wait_ended(list(self._children), deadline=deadline)
            for pidfd in self._children.keys() - alive:
                self._release_locks_of(self._children.pop(pidfd))
            self._end_orphans()

    def _end_orphans(self) -> None:
        """End what ended workers have started, where that is in no group of theirs."""
        if self._group is not None:
            process.end_orphans(self._group, but={child.pid for child in self._children.values()})


class _WorkerProcess(BaseProcess):
    """What multiprocessing does around a process of its own: finalizers, standard streams, tracebacks, exit codes."""

    def __init__(
        self,
        channel: int,
        board: int,
        recipe: Recipe | SealedRecipe,
        worker: WorkerNo,
        control: Channel,
        heritage: Heritage,
        *,
        parent_pid: int,
    ) -> None:
        numbers = recipe.identity.of(worker)
        super().__init__(name=f"{recipe.identity.kind}-{':'.join(map(str, numbers))}", daemon=False)
        self._identity = numbers
        self._start_method = recipe.identity.start_method
        self._parent_pid = parent_pid
        self._channel = channel
        self._board = Board.over(board)
        self._recipe = recipe
        self._worker = worker
        self._control = control
        self._heritage = heritage

    @property
    def daemon(self) -> bool:
        """True, as of torch's workers, which libraries ask about; but a worker may start processes of its own."""
        return True

    @daemon.setter
    def daemon(self, value: bool) -> None:
        self._config["daemon"] = value  # type: ignore[attr-defined]

    def run(self) -> None:
        """The worker's loop."""
        with contextlib.closing(self._control) as control:  # the stem's, and of no use afterwards
            recipe = self._recipe.unseal(control) if isinstance(self._recipe, SealedRecipe) else self._recipe
        if recipe is None:
            raise SystemExit(UNFIT)
        mend_all(recipe.broken)
        with contextlib.closing(Channel(socket.socket(fileno=self._channel), blocking=True)) as channel:
            run_worker(channel, self._board, recipe, self._worker, self._heritage)
        locks.keep()


def quieten() -> None:
    """Make this process indifferent to what is meant for the trainer: its terminal, its signals, its event loop."""
    groups.enter_group(0, None)
    quieten_signals()
    process.receive_signals()


def _fork_patiently() -> int:
    for _ in range(FORK_ATTEMPTS - 1):
        try:
            return process.fork()
        except process.CannotFork:
            time.sleep(FORK_PAUSE_S)
    return process.fork()
