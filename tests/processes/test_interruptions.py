"""Whatever a signal interrupts, an iterator goes on or says why it cannot, and nothing is left behind.

What interrupts is what a program does with signals: a handler that raises, such as Ctrl-C's, or one that saves.
"""

import ctypes
import functools
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from antifreeze.engine.backends import clean
from drop_in.harness import Way, our_way
from leftovers import Incarnation, incarnation, wait_until
from processes import datasets
from processes.datasets import Numbers, Stuck, assert_ended
from user_scripts import Ended, Script

pytestmark = pytest.mark.usefixtures("not_for_torch")


class Interrupted(BaseException):
    """As KeyboardInterrupt, but pytest does not take it for the user's."""


Interrupt = Callable[..., None]


@pytest.fixture
def interrupt() -> Iterator[Interrupt]:
    """`interrupt(action, when=is_so)`: while it goes on, a signal comes, and the handler raises; so does the action."""
    interruption: list[BaseException] = []

    def raise_it(signum: int, frame: FrameType | None) -> None:
        raise interruption[0]

    def interrupt(
        action: Callable[[], Any],
        *,
        when: Callable[[], bool] = lambda: True,
        after_s: float = 0.0,
        kind: type[BaseException] = Interrupted,
    ) -> None:
        def send() -> None:
            if wait_until(when, 20):
                time.sleep(after_s)  # not to wait for something, but to hit another moment
                os.kill(os.getpid(), signal.SIGUSR1)

        def act() -> None:
            thread.start()
            action()

        interruption[:] = [kind()]
        thread = threading.Thread(target=send)
        try:
            with pytest.raises(kind) as raised:
                act()
            assert raised.value is interruption[0]
        finally:
            with suppress(kind):  # when the action did not wait for it
                thread.join()
            thread.join()
            interruption.clear()

    previous = signal.signal(signal.SIGUSR1, raise_it)
    yield interrupt
    signal.signal(signal.SIGUSR1, previous)


FORKING = """
import os, signal
from antifreeze import DataLoader


def save(signum, frame):
    os.write(1, b"saved by %d\\n" % os.getpid())


if __name__ == "__main__":
    loader = DataLoader(range(4), num_workers=2, multiprocessing_context="fork")
    list(loader)
    signal.signal(signal.SIGINT, save)
    print("trainer", os.getpid())
    for _ in range(5):
        next(iter(loader))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("done")
"""


@pytest.mark.long
def test_no_process_of_ours_runs_what_the_trainer_does_about_a_signal(start_script: Callable[..., Script]) -> None:
    """Ctrl-C goes to the whole group, and a stem is in it until it has a group of its own: a second trainer, saving."""
    script = start_script(FORKING)
    (trainer,) = script.wait_line(r"trainer (\d+)", within_s=60).groups()
    while script.process.poll() is None and "done" not in script.stdout:
        for _ in range(50):
            os.killpg(script.process.pid, signal.SIGINT)
            time.sleep(0.0003)
    said = script.wait_exit(within_s=60).check().stdout
    assert set(re.findall(r"saved by (\d+)\n", said)) == {trainer}
    script.assert_gone()


ANY_MOMENT = """
import _thread, collections, faulthandler, functools, gc, os, signal, sys, threading
from antifreeze import DataLoader
from antifreeze.engine.backends import clean

KIND = {"KeyboardInterrupt": KeyboardInterrupt, "SystemExit": SystemExit, "TimeoutError": TimeoutError}[sys.argv[1]]
START_METHOD, IS_START, MOMENTS = sys.argv[2], sys.argv[3] == "start", int(sys.argv[4])
TRAINER = os.getpid()


class Interruption(KIND):
    pass


def interrupt(signum, frame):
    signal.signal(signum, signal.SIG_IGN)  # as programs do that want to be interrupted once
    raise Interruption


# What a signal does in Python; and no call in Python, after which the handler would run in here.
send = collections.defaultdict(functools.partial(_thread.interrupt_main, signal.SIGUSR1))


def do(action, moment=10**9):
    # Python looks for signals where a function begins and where a built-in one has returned.
    def look(frame, event, _):
        nonlocal moment
        is_a_moment = event in ("call", "c_return") and frame.f_code is not do.__code__ and os.getpid() == TRAINER
        # In generators of torch's samplers, which are finalized now and then, Python drops what a handler raises.
        if is_a_moment and "/torch/" not in frame.f_code.co_filename:
            moment -= 1
            if moment == 0:
                send[len(send)]
    sys.setprofile(look)
    try:
        kept = action()  # its end is not part of the action
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGUSR1, interrupt)
    return moment


def there_is():
    with open(f"/proc/self/task/{TRAINER}/children") as file:
        children = {int(pid) for pid in file.read().split()} - {clean.base_pid()}
    descriptors = {}
    for fd in {int(fd) for fd in os.listdir("/proc/self/fd")} - clean.base_fds():
        try:
            descriptors[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            pass  # that of the listing
    return children, descriptors, threading.active_count()


def act(moment=10**9):
    if IS_START:
        return do(loader.__iter__, moment)
    batches = iter(loader)
    next(batches)
    try:
        return do(batches._shutdown_workers, moment)
    finally:
        batches._shutdown_workers()


if __name__ == "__main__":
    gc.disable()
    signal.signal(signal.SIGUSR1, interrupt)
    loader = DataLoader(range(4), num_workers=1, multiprocessing_context=START_METHOD)
    list(loader)
    act()  # what is only done once is done
    count = 10**9 - act()
    before, interruptions = there_is(), 0
    for moment in range(1, count, count // MOMENTS):
        faulthandler.dump_traceback_later(8, exit=True)
        try:
            act(moment)
        except Interruption:
            interruptions += 1
        assert there_is() == before, (moment, count, there_is(), before)
    assert interruptions > 0.9 * MOMENTS, interruptions  # at the last moments it may have been done this time
    assert [int(batch) for batch in loader] == [0, 1, 2, 3]
    assert signal.getsignal(signal.SIGUSR1) is interrupt
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print("OK")
"""


@pytest.mark.long
@pytest.mark.fallback
@pytest.mark.parametrize(
    ("kind", "start_method", "action", "moments"),
    [
        ("KeyboardInterrupt", "fork", "start", 60),
        ("TimeoutError", "spawn", "start", 40),
        ("SystemExit", "fork", "stop", 30),
    ],
)
def test_an_interruption_at_any_moment_comes_out_as_it_is_and_leaves_nothing_behind(
    run_script: Callable[..., Ended], kind: str, start_method: str, action: str, moments: int
) -> None:
    """No process, zombie, descriptor or thread; and it is no fault of ours that torch would have to step in for."""
    ended = run_script(ANY_MOMENT, kind, start_method, action, str(moments)).check()
    assert (ended.stdout, ended.stderr) == ("OK\n", "")


class Endless:
    """Takes for ever: to be iterated, or to be sent."""

    def __init__(self, reached: Path) -> None:
        self.reached = reached

    def __iter__(self) -> Iterator[int]:
        self._take_for_ever()
        return iter(())

    def __getstate__(self) -> Any:
        self._take_for_ever()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index

    def _take_for_ever(self) -> None:
        self.reached.touch()
        time.sleep(1000)


def test_a_sampler_that_takes_for_ever_can_be_interrupted(way: Way, tmp_path: Path, interrupt: Interrupt) -> None:
    reached = tmp_path / "reached"
    loader = way.make(Numbers(4), sampler=Endless(reached))
    interrupt(lambda: next(iter(loader)), when=reached.exists)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError, pickle.PicklingError])
def test_a_dataset_that_takes_for_ever_to_send_can_be_interrupted_and_is_not_blamed(
    tmp_path: Path, interrupt: Interrupt, kind: type[BaseException]
) -> None:
    reached = tmp_path / "reached"
    loader = our_way("clean").make(Endless(reached))
    interrupt(lambda: iter(loader), when=reached.exists, kind=kind)


@pytest.mark.long
def test_a_clean_base_whose_start_is_interrupted_is_ended_and_the_next_works(interrupt: Interrupt) -> None:
    clean.stop_base()
    loader = our_way("clean").make(Numbers(4))
    started: list[Incarnation] = []
    interrupt(lambda: iter(loader), when=lambda: is_starting(started))
    assert clean.base_pid() is None
    assert_ended(started)
    assert [int(batch) for batch in loader] == [0, 1, 2, 3]


def is_starting(started: list[Incarnation]) -> bool:
    """Whether there is a clean base, and which; it has seconds of imports before it."""
    started[:] = [who for who in map(incarnation, filter(None, [clean.base_pid()])) if who]
    return bool(started)


def test_an_interruption_comes_out_and_ends_a_clean_base_that_hangs(interrupt: Interrupt) -> None:
    clean.stop_base()
    started: list[Incarnation] = []

    def is_stopped() -> bool:
        if is_starting(started):
            os.kill(started[0].pid, signal.SIGSTOP)
        return bool(started)

    interrupt(lambda: iter(our_way("clean").make(Numbers(4))), when=is_stopped)
    assert_ended(started)


def test_a_stop_that_is_interrupted_ends_stuck_workers_all_the_same_and_may_be_repeated(
    tmp_path: Path, interrupt: Interrupt
) -> None:
    dataset = Stuck(tmp_path, datasets.ignore_sigterm)
    batches = iter(our_way("grown").make(dataset))
    processes = dataset.wait_stuck(2)
    interrupt(batches._shutdown_workers, after_s=0.2)
    batches._shutdown_workers()
    assert_ended(processes)


class Gated(Numbers):
    """Samples from `first` on come when the gate is open."""

    def __init__(self, gate: Path, *, first: int, length: int = 8) -> None:
        super().__init__(length)
        self.gate = gate
        self.first = first

    def __getitem__(self, index: int) -> int:
        assert index < self.first or wait_until(self.gate.exists, 20)
        return index


@pytest.mark.long(but=1)
def test_an_interruption_while_next_waits_costs_no_batch(way: Way, tmp_path: Path, interrupt: Interrupt) -> None:
    gate = tmp_path / "gate"
    batches = iter(way.make(Gated(gate, first=2)))
    seen = [int(next(batches)) for _ in range(2)]
    for after_s in (0, 1):  # in another slice of the wait
        interrupt(batches.__next__, when=this_thread_waits(), after_s=after_s)
    gate.touch()
    assert seen + [int(batch) for batch in batches] == list(range(8))


class Timeout(Exception):
    """What programs raise to break off what takes too long."""


def give_up(after: str, signum: int, frame: FrameType | None) -> None:
    raise Timeout(after)


def test_a_timeout_by_a_handler_that_is_no_function_comes_out(way: Way, tmp_path: Path) -> None:
    """It must not be taken for a fault of ours, for which the rest of the epoch would be loaded in this process."""
    gate = tmp_path / "gate"
    batches = iter(way.make(Gated(gate, first=2)))
    seen = [int(next(batches)) for _ in range(2)]
    before = signal.signal(signal.SIGALRM, functools.partial(give_up, "half a second"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(Timeout, match="half a second"):
            next(batches)
    finally:
        signal.signal(signal.SIGALRM, before)
    gate.touch()
    assert seen + [int(batch) for batch in batches] == list(range(8))
    assert batches._workers


def test_what_another_thread_throws_into_the_one_that_waits_comes_out(way: Way, tmp_path: Path) -> None:
    """As libraries do that limit the time of a function in a thread, and programs that end their threads."""
    gate = tmp_path / "gate"
    batches = iter(way.make(Gated(gate, first=0)))
    thread, is_waiting = threading.get_ident(), this_thread_waits()

    def throw() -> None:
        if wait_until(is_waiting, 20):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Timeout))

    thrower = threading.Thread(target=throw)
    thrower.start()
    with pytest.raises(Timeout):
        next(batches)
    thrower.join()
    gate.touch()
    assert [int(batch) for batch in batches] == list(range(8))
    assert batches._workers


def this_thread_waits() -> Callable[[], bool]:
    """To be asked by another: whether this thread has been in one place for long enough to be waiting there."""
    thread = threading.get_ident()
    places: list[Any] = []

    def is_waiting() -> bool:
        frame = sys._current_frames()[thread]
        places.append((frame, frame.f_lasti))
        return len(places) > 8 and all(place == places[-1] for place in places[-8:])

    return is_waiting


MOMENTS = """
import faulthandler, os, signal, sys
import torch
import antifreeze
from antifreeze import DataLoader
from torch.utils.data import Dataset

OURS = os.path.dirname(antifreeze.__file__)
KIND = {"KeyboardInterrupt": KeyboardInterrupt, "TimeoutError": TimeoutError}[sys.argv[1]]
SIZE = int(sys.argv[2])
WINDOW = 2


class Tensors(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, index):
        return torch.full((SIZE,), index)


def interrupt(signum, frame):
    raise KIND


def next_with_a_signal(batches, moment):
    # Python looks for signals where a function begins and where a built-in one has returned.
    def look(frame, event, _):
        nonlocal moment
        code = frame.f_code
        if event in ("call", "c_return") and code.co_filename.startswith(OURS) and code.co_name != "__del__":
            moment -= 1
            if moment == 0:
                signal.raise_signal(signal.SIGUSR1)
    sys.setprofile(look)
    try:
        return next(batches), moment
    finally:
        sys.setprofile(None)


def goes_on(batches, expected):
    # Whether the next batches come in their order, as many as could be missing; else there must be an error that stays.
    try:
        for number in range(expected, expected + WINDOW + 2):
            (got,) = next(batches)
            assert got.tolist() == [number] * SIZE, f"{got[0]}, not {number}"
    except RuntimeError as error:
        for _ in range(2):
            try:
                next(batches)
                raise AssertionError("a batch after an error")
            except RuntimeError as again:
                assert str(again) == str(error) and "interrupted" in str(error), error
        return False
    return True


def interrupt_at_every_moment(loader):
    batches, expected, moment, outcomes = None, 0, 1, []
    while True:
        faulthandler.dump_traceback_later(4, exit=True)
        if batches is None:
            batches, expected = iter(loader), WINDOW + 2
            assert goes_on(batches, 0)
        try:
            (got,), left = next_with_a_signal(batches, moment)
            assert got.tolist() == [expected] * SIZE
            if left > 0:
                return outcomes
            expected += 1
        except KIND:
            pass
        outcomes.append(goes_on(batches, expected))
        expected += WINDOW + 2
        moment += 2
        if not outcomes[-1]:
            batches = None


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, interrupt)
    torch.set_num_threads(1)
    loader = DataLoader(Tensors(), num_workers=1, prefetch_factor=WINDOW, multiprocessing_context="fork")
    outcomes = interrupt_at_every_moment(loader)
    assert set(outcomes) == {True, False}, outcomes
    print("OK")
"""


@pytest.mark.long
@pytest.mark.parametrize(("kind", "size"), [("KeyboardInterrupt", 3), ("TimeoutError", 50_000)])
def test_after_an_interruption_at_any_moment_the_next_batch_or_an_error_comes(
    run_script: Callable[..., Ended], kind: str, size: int
) -> None:
    """Batches that are copied out of their slot, and batches that are lent."""
    assert run_script(MOMENTS, kind, str(size)).check().stdout == "OK\n"
