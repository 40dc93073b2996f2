"""Signal handlers are held and let through as promised, and nothing of that is left afterwards."""

import contextlib
import ctypes
import functools
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from antifreeze.engine.backends import interruptions
from antifreeze.engine.backends.interruptions import behind, held, is_of_a_handler, let_through, let_through_others

USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2


class Interrupted(BaseException):
    """What a handler of these tests raises."""


class Program:
    """What a program does about its signals."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.raises: set[int] = set()

    def handle(self, signum: int, frame: FrameType | None) -> None:
        self.handled.append(signum)
        if signum in self.raises:
            raise Interrupted(signum)


@pytest.fixture
def program() -> Iterator[Program]:
    program = Program()
    handle = program.handle
    before = {number: signal.signal(number, handle) for number in (USR1, USR2)}
    yield program
    assert [signal.getsignal(number) for number in (USR1, USR2)] == [handle, handle]
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_handler_that_is_held_runs_at_the_end(program: Program) -> None:
    with held():
        signal.raise_signal(USR1)
        assert program.handled == []
    assert program.handled == [USR1]


def test_what_it_raises_comes_out_at_the_end_and_keeps_no_other_from_running(program: Program) -> None:
    program.raises = {USR1, USR2}
    done = []

    def act() -> None:
        with held():
            signal.raise_signal(USR1)
            signal.raise_signal(USR2)
            done.append(True)

    with pytest.raises(Interrupted):
        act()
    assert done
    assert sorted(program.handled) == [USR1, USR2]


def test_whoever_holds_within_another_lets_nothing_through(program: Program) -> None:
    with held():
        with held():
            signal.raise_signal(USR1)
        assert program.handled == []
    assert program.handled == [USR1]


def test_what_is_due_runs_before_what_is_let_through(program: Program) -> None:
    with held():
        signal.raise_signal(USR1)
        assert let_through(lambda: list(program.handled)) == [USR1]
        let_through(lambda: signal.raise_signal(USR2))
        assert program.handled == [USR1, USR2]
        signal.raise_signal(USR1)
        assert program.handled == [USR1, USR2]


def test_it_is_held_again_when_what_was_let_through_has_raised(program: Program) -> None:
    program.raises = {USR2}
    with held():
        with pytest.raises(Interrupted):
            let_through(lambda: signal.raise_signal(USR2))
        signal.raise_signal(USR1)
        assert program.handled == [USR2]


def test_code_of_others_can_be_interrupted_and_ours_cannot(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    with held():
        let_through_others(lambda: signal.raise_signal(USR1))
        assert program.handled == [USR1]
        monkeypatch.setattr(interruptions, "_OURS", os.path.dirname(__file__))
        let_through_others(lambda: signal.raise_signal(USR2))
        assert program.handled == [USR1]
    assert program.handled == [USR1, USR2]


def test_what_a_handler_raised_is_known_also_behind_another_error(program: Program) -> None:
    program.raises = {USR1}

    def translate() -> None:
        try:
            signal.raise_signal(USR1)
        except Interrupted as why:
            raise OSError from why

    with held():
        with pytest.raises(OSError) as translated:
            let_through(translate)
        assert isinstance(behind(translated.value), Interrupted)
        assert behind(OSError()) is None
        assert behind(Interrupted()) is None, "of the same type, but not a handler's"


class Timeout(Exception):
    """What a handler of these tests raises that is an exception like any other."""


def give_up(*given: object) -> None:
    raise Timeout(given[0])


def give_up_once(signum: int, frame: FrameType | None) -> None:
    signal.signal(signum, signal.SIG_IGN)
    raise Timeout(signum)


class GiveUp:
    """A handler that is no function."""

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        raise Timeout(signum)


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize(
    "handler", [give_up, give_up_once, functools.partial(give_up, "batch 3"), GiveUp(), lambda *_: give_up("batch 4")]
)
def test_what_a_handler_of_any_kind_raised_is_known(handler: Any, is_held: bool) -> None:
    before = signal.signal(USR1, handler)
    try:
        with pytest.raises(Timeout) as raised, held() if is_held else contextlib.nullcontext():
            signal.raise_signal(USR1)
        assert is_of_a_handler(raised.value)
    finally:
        signal.signal(USR1, before)
    with pytest.raises(OSError) as raised_by_ourselves:
        os.close(-1)
    assert not is_of_a_handler(raised_by_ourselves.value)


def test_a_handler_that_the_program_sets_meanwhile_stays(program: Program) -> None:
    handled: list[int] = []
    with held():
        previous = let_through(lambda: signal.signal(USR1, lambda number, _: handled.append(number)))
    signal.raise_signal(USR1)
    signal.signal(USR1, previous)  # a stand-in of ours: it passes everything on
    signal.raise_signal(USR1)
    assert (handled, program.handled) == ([USR1], [USR1])
    with held():
        pass


def test_what_the_kernel_knows_stays_as_it_was(program: Program) -> None:
    def action() -> bytes:
        into = ctypes.create_string_buffer(512)
        ctypes.CDLL(None).sigaction(USR1, None, into)
        return into.raw[:16] + into.raw[136:140]  # function, the mask as far as the kernel has one, flags

    signal.siginterrupt(USR1, False)  # asyncio does this, so that calls in C libraries are not interrupted
    before = action()
    with held():
        assert action() == before
    assert action() == before


def test_a_forked_child_does_what_the_program_has_said(program: Program) -> None:
    def be_child() -> bool:
        signal.raise_signal(USR2)
        return program.handled == [USR2] and signal.getsignal(USR1) == program.handle

    with held():
        signal.raise_signal(USR1)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if be_child() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert program.handled == []
    assert program.handled == [USR1]


def test_another_thread_holds_nothing(program: Program) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with held():
            entered.set()
            leave.wait(5)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(5)
    signal.raise_signal(USR1)
    assert program.handled == [USR1]
    leave.set()
    thread.join()
