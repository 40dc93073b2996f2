"""The Python stacks of workers, on their boards: at a crash, and when they are asked; whatever they are doing."""

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antifreeze import machine
from antifreeze.engine.arena import board as board_module
from antifreeze.engine.arena.board import Board
from antifreeze.engine.backends import process
from antifreeze.engine.supervise import stacks
from antifreeze.engine.supervise.cause import cause_of
from antifreeze.engine.worker import birth
from drop_in.harness import Way
from leftovers import wait_until
from processes import faulty


class Child:
    """A process that was born like a worker, and does this."""

    def __init__(self, board: Board, act: Callable[[], object]) -> None:
        self.board = board
        self.pid = process.fork()
        if self.pid == 0:
            try:
                birth.write_stacks(board_module.open_text(board.segment.fd), on_signal=process.STACK_SIGNAL)
                process.receive_signals()
                machine.give_own_offsets()
                act()
            finally:
                os._exit(3)
        self.pidfd = process.open_pidfd(self.pid)

    def exitcode(self) -> int | None:
        assert process.wait_ended([self.pidfd], deadline=time.monotonic() + 10) == []
        return process.reap(self.pid)

    def stack(self) -> stacks.Stack:
        """The answer to a question."""
        start = self.board.text_end()
        process.ask_for_stack(self.pidfd)
        text = ""

        def is_whole() -> bool:
            nonlocal text
            before, text = text, self.board.read_text(start)
            return bool(text) and text == before

        assert wait_until(is_whole, 5)
        (answer,) = stacks.parse(text)
        return answer

    def waits_in(self, word: str) -> bool:
        def does() -> bool:
            facts = machine.process_facts(self.pid)
            return facts is not None and facts.waits_in == word

        return wait_until(does, 5)


Start = Callable[[Callable[[], object]], Child]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Child] = []

    def fork(act: Callable[[], object]) -> Child:
        started.append(Child(board_module.create(), act))
        return started[-1]

    yield fork
    for child in started:
        process.kill(child.pidfd)
        child.exitcode()
        os.close(child.pidfd)
        child.board.close()


CRASHES = {
    faulty.segfault: (signal.SIGSEGV, "Segmentation fault"),
    faulty.abort: (signal.SIGABRT, "Aborted"),
    faulty.bus_error: (signal.SIGBUS, "Bus error"),
}


@pytest.mark.parametrize("act", CRASHES, ids=lambda act: act.__name__)
def test_the_stack_of_a_crash_is_read_after_death(start: Start, act: Callable[[], None]) -> None:
    number, words = CRASHES[act]
    child = start(act)
    exitcode = child.exitcode()
    assert exitcode == -number
    (stack,) = stacks.parse(child.board.read_text())
    assert stack.fatal == words
    telling = stacks.most_telling(stack)
    assert telling is not None and (telling.file, telling.function) == (faulty.__file__, act.__name__)
    cause = cause_of(exitcode, stack=stack)
    assert number.name in cause.what and any(act.__name__ in line for line in cause.evidence)


STUCK = {faulty.hold_the_gil: "sleep", faulty.wait_on_a_lock: "lock", faulty.wait_on_a_pipe: "pipe"}


@pytest.mark.parametrize("act", STUCK, ids=lambda act: act.__name__)
def test_a_process_that_is_stuck_shows_its_stack_and_stays_stuck(start: Start, act: Callable[[], None]) -> None:
    child = start(act)
    assert child.waits_in(STUCK[act])
    for _ in range(3):
        telling = stacks.most_telling(child.stack())
        assert telling is not None and telling.function == act.__name__
    assert child.waits_in(STUCK[act])
    assert len(stacks.parse(child.board.read_text())) == 3


def test_every_thread_is_shown(start: Start) -> None:
    def work_with_threads() -> None:
        threading.Thread(target=faulty.wait_on_a_lock, daemon=True).start()
        faulty.wait_on_a_pipe()

    child = start(work_with_threads)
    assert child.waits_in("pipe")

    def has_both() -> bool:
        functions = {frame.function for thread in child.stack().threads for frame in thread.frames}
        return {"wait_on_a_lock", "wait_on_a_pipe"} <= functions

    assert wait_until(has_both, 5)


def test_a_process_may_be_asked_as_soon_as_it_exists(start: Start) -> None:
    children = [start(faulty.wait_on_a_pipe) for _ in range(5)]
    for child in children:
        process.ask_for_stack(child.pidfd)
    for child in children:
        assert wait_until(lambda child=child: bool(child.board.text_end()), 5)
        assert not process.has_ended(child.pidfd)


def test_a_process_that_is_stopped_answers_when_it_goes_on(start: Start) -> None:
    child = start(faulty.wait_on_a_pipe)
    assert child.waits_in("pipe")
    os.kill(child.pid, signal.SIGSTOP)
    process.ask_for_stack(child.pidfd)
    assert child.board.read_text() == ""
    os.kill(child.pid, signal.SIGCONT)
    assert wait_until(lambda: "wait_on_a_pipe" in child.board.read_text(), 5)


def test_a_process_that_has_ended_may_be_asked(start: Start) -> None:
    child = start(lambda: None)
    assert child.exitcode() == 3
    process.ask_for_stack(child.pidfd)


def fork_and_wait(act: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_becomes_of_a_workers_own_child_is_not_on_its_board(start: Start) -> None:
    def have_a_child_that_crashes() -> None:
        with open(os.devnull, "w") as nothing:  # a child writes where it always would have
            os.dup2(nothing.fileno(), 2)
        os._exit(10 if fork_and_wait(faulty.segfault) == -signal.SIGSEGV else 11)

    child = start(have_a_child_that_crashes)
    assert child.exitcode() == 10
    assert child.board.read_text() == ""


def test_a_child_of_a_child_keeps_all_its_descriptors(start: Start) -> None:
    def have_a_grandchild() -> None:
        fd = birth._stacks
        assert fd is not None

        def open_under_the_same_number_and_fork() -> None:
            assert birth._stacks is None
            read = os.open(os.devnull, os.O_RDONLY)
            os.dup2(read, fd)
            os._exit(fork_and_wait(lambda: os._exit(10 if os.fstat(fd).st_rdev else 11)))

        os._exit(fork_and_wait(open_under_the_same_number_and_fork))

    assert start(have_a_grandchild).exitcode() == 10


def test_a_program_that_a_worker_starts_has_no_descriptor_of_the_board(start: Start) -> None:
    def count() -> None:
        command = ["ls", "-l", "/proc/self/fd"]
        listing = subprocess.run(command, capture_output=True, text=True, close_fds=False, check=True)
        os._exit(10 if "antifreeze-slot" not in listing.stdout else 11)

    assert start(count).exitcode() == 10


SCRIPT = """
import ctypes, faulthandler, os, signal, sys
{before}
from antifreeze.engine.arena import board
from antifreeze.engine.backends import process
from antifreeze.engine.worker import birth

birth.write_stacks(board.open_text(board.create().segment.fd), on_signal=process.STACK_SIGNAL)
if os.fork() == 0:
    ctypes.string_at(0)
os.wait()
"""


@pytest.mark.long(but=1)
@pytest.mark.parametrize("before", ["", "faulthandler.enable()"])
def test_a_child_of_a_worker_crashes_as_it_would_have_without_us(before: str) -> None:
    command = [sys.executable, "-c", SCRIPT.format(before=before)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    assert ended.stderr.partition("\n")[0] == ("Fatal Python error: Segmentation fault" if before else "")


class AskedInside:
    """Every sample asks its own worker for the stack, and tells whether it is ready to crash."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        signal.raise_signal(process.STACK_SIGNAL)
        return int(faulthandler.is_enabled()), index


def test_real_workers_are_ready_from_the_start(way: Way) -> None:
    def ask(_: int) -> None:
        signal.raise_signal(process.STACK_SIGNAL)  # deadly, if it were not known yet

    loader = way.make(AskedInside(), batch_size=2, num_workers=2, worker_init_fn=ask)
    assert [[part.tolist() for part in batch] for batch in loader] == [[[1, 1], [0, 1]], [[1, 1], [2, 3]]]
