"""Threads, signal handlers and children of the trainer at one iterator: each batch once, and no wait without an end."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import antifreeze
from antifreeze.engine.arena import segment
from antifreeze.engine.pool import ending
from antifreeze.iterator import RE_ENTERED
from drop_in.harness import our_way
from leftovers import wait_until
from processes.datasets import Numbers
from user_scripts import Ended

pytestmark = pytest.mark.usefixtures("not_for_torch")

PATIENCE_S = 20
SHUT_DOWN = "have been shut down"


class Gated(Numbers):
    """Samples from the third on come when the gate is open."""

    def __init__(self, gate: Path) -> None:
        super().__init__(8)
        self.gate = gate

    def __getitem__(self, index: int) -> int:
        assert index < 2 or wait_until(self.gate.exists, PATIENCE_S)
        return index


class Waiting:
    """A thread that is in `next()` for good, unless something ends that."""

    def __init__(self, batches: Any) -> None:
        self.raised: list[Exception] = []
        self.got = [int(next(batches)) for _ in range(2)]
        self.thread = threading.Thread(target=self._take, args=(batches,))
        self.thread.start()
        assert wait_until(lambda: batches._epoch._pool.is_waiting, PATIENCE_S)

    def _take(self, batches: Any) -> None:
        try:
            self.got.extend(int(batch) for batch in batches)
        except Exception as error:
            self.raised.append(error)

    def join(self) -> None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"seeding": "ticket"}], ids=str)
def test_threads_that_share_an_iterator_get_each_batch_once(options: dict[str, Any]) -> None:
    batches = iter(our_way("grown").make(Numbers(200), **options))
    got: list[list[int]] = [[], [], []]

    def take(into: list[int]) -> None:
        into.extend(int(batch) for batch in batches)

    threads = [threading.Thread(target=take, args=(into,)) for into in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(number for into in got for number in into) == list(range(200))
    assert all(into == sorted(into) for into in got)


def test_one_thread_can_shut_down_what_another_one_waits_for(tmp_path: Path) -> None:
    batches = iter(our_way("grown").make(Gated(tmp_path / "gate")))
    waiting = Waiting(batches)
    batches._shutdown_workers()
    waiting.join()
    assert [SHUT_DOWN in str(error) for error in waiting.raised] == [True]
    assert not any(worker.is_alive() for worker in batches._workers)


def test_a_child_does_not_wait_for_a_thread_that_only_its_parent_has(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    batches = iter(our_way("grown").make(Gated(gate)))
    waiting = Waiting(batches)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(PATIENCE_S)
            batches._shutdown_workers()
            with pytest.raises(RuntimeError, match="belongs to the process that made it"):
                next(batches)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    gate.touch()
    waiting.join()
    assert (waiting.got, waiting.raised) == (list(range(8)), [])


def test_the_state_of_a_loader_can_be_asked_for_while_another_thread_takes_batches() -> None:
    loader = antifreeze.StatefulDataLoader(Numbers(100), num_workers=2, multiprocessing_context="fork")
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(int(batch) for batch in loader))
    thread.start()
    states = []
    while thread.is_alive():
        states.append(loader.state_dict())
    thread.join(PATIENCE_S)
    assert got == list(range(100))
    rest = antifreeze.StatefulDataLoader(Numbers(100), num_workers=2, multiprocessing_context="fork")
    state = states[len(states) // 2]
    rest.load_state_dict(state)
    numbers = [int(batch) for batch in rest]
    assert numbers == list(range(100))[-len(numbers) :]


@contextmanager
def handler(action: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """What a signal does meanwhile; gives what sends it as soon as this thread waits."""

    def handle(signum: int, frame: FrameType | None) -> None:
        action()

    previous = signal.signal(signal.SIGUSR1, handle)
    try:
        yield lambda: os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_a_signal_handler_can_shut_down_what_it_interrupts(tmp_path: Path) -> None:
    batches = iter(our_way("grown").make(Gated(tmp_path / "gate")))
    workers = batches._workers
    assert [int(next(batches)), int(next(batches))] == [0, 1]
    with handler(batches._shutdown_workers) as send:
        thread = threading.Thread(target=lambda: wait_until(lambda: batches._epoch._pool.is_waiting, 9) and send())
        thread.start()
        with pytest.raises(RuntimeError, match=SHUT_DOWN):
            next(batches)
        thread.join(PATIENCE_S)
    assert not any(worker.is_alive() for worker in workers)


class Interrupted:
    """The turn of an iterator; a signal comes while it is given back for the third time."""

    def __init__(self, turn: Any) -> None:
        self.turn = turn
        self.left = 3

    def __enter__(self) -> None:
        self.turn.__enter__()

    def __exit__(self, *error: object) -> None:
        self.turn.__exit__(*error)
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGUSR1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.turn, name)


def test_a_batch_that_a_signal_handler_costs_after_it_was_taken_is_no_gap() -> None:
    def interrupt() -> None:
        raise TimeoutError

    batches: Any = iter(our_way("grown").make(Numbers(8)))
    batches._turn = Interrupted(batches._turn)
    got = [int(next(batches)) for _ in range(2)]
    with handler(interrupt):
        with pytest.raises(TimeoutError):
            next(batches)
        with pytest.raises(RuntimeError, match="cannot go on without a gap"):
            next(batches)
    assert got == [0, 1]


def test_a_wait_that_was_interrupted_before_does_not_hide_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a signal while `state_dict()` waited for workers, when the next batch was there already."""
    batches: Any = iter(our_way("grown").make(Numbers(8)))
    epoch = batches._epoch
    while not epoch._delivery.has_next():
        epoch._listen_to(None)
    epoch._pool.is_waiting = True

    def interrupted(arrival: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(epoch._outcomes, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="cannot go on without a gap"):
        next(batches)


def test_a_signal_handler_that_takes_a_batch_from_what_it_interrupts_is_told_so(tmp_path: Path) -> None:
    gate, said = tmp_path / "gate", []
    batches = iter(our_way("grown").make(Gated(gate)))
    got = [int(next(batches)), int(next(batches))]

    def take() -> None:
        with pytest.raises(RuntimeError) as raised:
            next(batches)
        said.append(str(raised.value))
        gate.touch()

    with handler(take) as send:
        thread = threading.Thread(target=lambda: wait_until(lambda: batches._epoch._pool.is_waiting, 9) and send())
        thread.start()
        got += [int(batch) for batch in batches]
        thread.join(PATIENCE_S)
    assert (got, said) == (list(range(8)), [RE_ENTERED])


DAEMON = """
import atexit, threading, time
from antifreeze import DataLoader
from torch.utils.data import IterableDataset


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield 0
            time.sleep(float(sys.argv[1]))


def prefetch():
    loader = DataLoader(Endless(), num_workers=1, multiprocessing_context="fork")
    for _ in loader:
        begun.set()


if __name__ == "__main__":
    import sys
    begun = threading.Event()
    threads = [threading.Thread(target=prefetch, daemon=True) for _ in range(2)]
    for thread in threads:
        atexit.register(thread.join)
        thread.start()
    assert begun.wait(20)
    print("OK")
"""


@pytest.mark.long
@pytest.mark.parametrize("pause_s", ["0", "1000"])
def test_a_daemon_thread_that_iterates_when_the_program_ends_says_nothing_and_ends(
    run_script: Callable[..., Ended], pause_s: str
) -> None:
    """As background generators do, whether busy or waiting; the program may wait for the end of its thread."""
    ended = run_script(DAEMON, pause_s).check()
    assert (ended.stdout, ended.stderr) == ("OK\n", "")


KEPT = """
import atexit
import torch
from antifreeze import DataLoader

kept = []


def drop():
    kept.clear()
    print("antifreeze-slot" in open("/proc/self/maps").read())


if __name__ == "__main__":
    atexit.register(drop)  # before the loader's end is registered, and so done after it
    kept.extend(DataLoader(torch.zeros(4, 100_000), num_workers=1, multiprocessing_context="fork"))
"""


def test_batches_that_die_at_the_end_of_the_program_are_not_unmapped(run_script: Callable[..., Ended]) -> None:
    """A daemon thread that drops one then, and is ended meanwhile, would take the program down with it."""
    assert run_script(KEPT).check().stdout == "True\n"


class Unwell:
    """A pool."""

    def __init__(self, stopped: list[Any]) -> None:
        self.stopped = stopped

    def ask_to_stop(self) -> None:
        raise OSError("asking")

    def stop(self, *, deadline: float | None = None) -> None:
        self.stopped.append(self)
        raise OSError("stopping")

    def abandon(self) -> None:
        """Nothing."""


def test_at_the_end_of_the_program_all_pools_are_stopped_whatever_one_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Any] = []
    pools = {Unwell(stopped), Unwell(stopped)}
    monkeypatch.setattr(ending, "_pools", pools)
    monkeypatch.setattr(ending, "_is_at_exit", False)
    monkeypatch.setattr(segment, "_kept", None)
    with pytest.raises(OSError, match="asking"):
        ending._stop_all()
    assert set(stopped) == pools
