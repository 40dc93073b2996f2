"""A lock of multiprocessing whose holder died is released on its behalf, and no other lock ever is."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import pytest
import torch

from antifreeze import DataLoader, machine
from leftovers import wait_until
from processes.datasets import Numbers

pytestmark = pytest.mark.usefixtures("not_for_torch")
LENGTH = 12
FIRST_VALUE = multiprocessing.Value("i", 0)
"""multiprocessing keeps the memory that its first value needs: before a test looks for what it leaves behind."""


class Guarded(Numbers):
    """The worker that comes to sample 5 first is killed while it holds the lock."""

    def __init__(self, make: Callable[[], Any], work: Callable[[Any, Callable[[], None]], None]) -> None:
        super().__init__(LENGTH)
        self.guard = make()
        self.work = work
        self.killed = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __getitem__(self, index: int) -> int:
        self.work(self.guard, lambda: self.strike(index))
        return index

    def strike(self, index: int) -> None:
        if index == 5 and not self.killed:
            self.killed += 1
            os.kill(os.getpid(), signal.SIGKILL)


def enter(guard: Any, strike: Callable[[], None]) -> None:
    with guard:
        strike()


def acquire(guard: Any, strike: Callable[[], None]) -> None:
    guard.acquire()
    try:
        strike()
    finally:
        guard.release()


def enter_twice(guard: Any, strike: Callable[[], None]) -> None:
    with guard:
        acquire(guard, strike)


def count(guard: "Synchronized[int]", strike: Callable[[], None]) -> None:
    with guard.get_lock():
        guard.value += 1
        strike()


def pair_of_locks() -> Any:
    return multiprocessing.Lock(), multiprocessing.RLock()


def enter_both(guard: Any, strike: Callable[[], None]) -> None:
    with guard[0]:
        acquire(guard[1], strike)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("make", "work"),
    [
        (multiprocessing.Lock, enter),
        (multiprocessing.Lock, acquire),
        (multiprocessing.RLock, enter),
        (multiprocessing.RLock, enter_twice),
        (torch.multiprocessing.Lock, enter),
        (lambda: multiprocessing.Value("i", 0), count),
        (lambda: multiprocessing.Value("i", 0), acquire),
        (lambda: multiprocessing.Array("i", 3), enter),
        (multiprocessing.Condition, enter),
        (multiprocessing.Condition, acquire),
        (pair_of_locks, enter_both),
    ],
)
def test_the_lock_of_a_killed_worker_is_released(make: Callable[[], Any], work: Callable[..., None]) -> None:
    dataset = Guarded(make, work)
    batches = DataLoader(dataset, num_workers=2, multiprocessing_context="fork", stall_after=5, sample_timeout=10)
    assert [int(batch) for batch in batches] == list(range(LENGTH))
    assert dataset.killed == 1
    work(dataset.guard, lambda: None)  # the trainer may have it, too


class Contended(Numbers):
    """Worker 0 holds the lock, kills worker 1 while that waits for it, and waits until the next one does."""

    def __init__(self) -> None:
        super().__init__(2)
        self.lock = multiprocessing.Lock()
        self.waiting = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.is_held = torch.zeros(1, dtype=torch.bool).share_memory_()

    def __getitem__(self, index: int) -> int:
        return self.hold() if index == 0 else self.wait()

    def hold(self) -> int:
        with self.lock:
            self.is_held.fill_(True)
            first = self.pid_of_a_waiting_worker(other_than=0)
            os.kill(first, signal.SIGKILL)
            self.pid_of_a_waiting_worker(other_than=first)
            self.is_held.fill_(False)
        return first

    def pid_of_a_waiting_worker(self, *, other_than: int) -> int:
        def waits() -> bool:
            facts = machine.process_facts(int(self.waiting))
            return int(self.waiting) not in (0, other_than) and facts is not None and facts.waits_in == "lock"

        assert wait_until(waits, 20)
        return int(self.waiting)

    def wait(self) -> int:
        assert wait_until(lambda: bool(self.is_held), 20) or self.waiting
        self.waiting.fill_(os.getpid())
        with self.lock:
            assert not self.is_held, "two hold the lock"
        return 1


def test_a_lock_is_not_released_for_a_worker_that_died_waiting_for_it() -> None:
    dataset = Contended()
    killed, one = DataLoader(dataset, num_workers=2, multiprocessing_context="fork", stall_after=30)
    assert int(one) == 1 and int(dataset.waiting) != int(killed)


class Holding(Numbers):
    """From its second sample on, a worker takes the lock and does not come back."""

    def __init__(self) -> None:
        super().__init__(LENGTH)
        self.lock = multiprocessing.Lock()
        self.never = multiprocessing.Event()
        self.is_held = torch.zeros(1, dtype=torch.bool).share_memory_()

    def __getitem__(self, index: int) -> int:
        if index > 1:
            with self.lock:
                self.is_held.fill_(True)
                self.never.wait(1000)
        return index


def test_after_an_iterator_its_locks_are_free() -> None:
    dataset = Holding()
    batches = iter(DataLoader(dataset, num_workers=2, multiprocessing_context="fork"))
    next(batches)
    assert wait_until(lambda: bool(dataset.is_held), 20)
    del batches
    assert dataset.lock.acquire(timeout=10)
    dataset.lock.release()


class MakesItsOwn(Numbers):
    """Locks and values that are made in a worker are as ever."""

    def __init__(self) -> None:
        super().__init__(4)
        self.inherited = multiprocessing.Value("i", 0)

    def __getitem__(self, index: int) -> int:
        own = multiprocessing.Value("i", index)
        with own, multiprocessing.Condition(), self.inherited:
            own.value += self.inherited.value
        return own.value


def test_what_is_made_in_a_worker_works_beside_what_is_inherited() -> None:
    batches = DataLoader(MakesItsOwn(), num_workers=2, multiprocessing_context="fork")
    assert [int(batch) for batch in batches] == [0, 1, 2, 3]


class OnlyOnce(Numbers):
    """Whoever takes the lock first does something for all that come later, and never releases it."""

    def __init__(self) -> None:
        super().__init__(4)
        self.lock = multiprocessing.Lock()
        self.times = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __getitem__(self, index: int) -> int:
        if self.lock.acquire(block=False):
            self.times += 1
        return index


def test_a_lock_that_a_worker_keeps_when_it_leaves_stays_taken() -> None:
    dataset = OnlyOnce()
    for _ in range(2):
        assert len(list(DataLoader(dataset, num_workers=2, multiprocessing_context="fork"))) == 4
    assert dataset.times == 1
    assert not dataset.lock.acquire(block=False)
