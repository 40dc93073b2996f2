"""Locks of multiprocessing: what is noted of them, and what is released when their holder is dead."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from antifreeze.engine.worker import locks
from antifreeze.engine.worker.locks import SharedLocks, abandoned
from leftovers import wait_until

NOTHING = [0] * 12


@pytest.fixture
def marks() -> Iterator[memoryview]:
    """This process is a worker for a while."""
    made = memoryview(bytearray(8 * len(NOTHING))).cast("q")
    locks.note_on(made)
    yield made
    locks._forget_in_child()


def noted(marks: memoryview) -> list[int]:
    return [mark for mark in marks.tolist() if mark]


# --- the decision


@pytest.mark.parametrize(
    ("dead", "others", "expected"),
    [
        ([], [], set()),
        ([0, 3, 0], [], {3}),
        ([3, 1], [[2], [0]], {1, 3}),
        ([-3], [], set()),
        ([3], [[-3], [-3]], {3}),
        ([3], [[3]], set()),
        ([3, -3], [], {3}),
    ],
)
def test_what_a_dead_worker_certainly_held_is_abandoned(
    dead: list[int], others: list[list[int]], expected: set[int]
) -> None:
    assert abandoned(dead, others) == expected


# One round of a process: each step, the mark it leaves, and what it does to the semaphore.
ROUND = ["idle", "taking", "has taken", "holds", "letting go", "has let go"]
MARKS = {"idle": 0, "taking": -1, "has taken": -1, "holds": 1, "letting go": -1, "has let go": -1}
HOLDING = {"has taken", "holds", "letting go"}


@dataclass(frozen=True)
class World:
    """One lock, two workers with boards, and a process without one."""

    is_taken: bool = False
    steps: tuple[str, str, str] = ("idle", "idle", "idle")
    alive: tuple[bool, bool, bool] = (True, True, True)

    def successors(self) -> Iterator["World"]:
        for who in range(3):
            if not self.alive[who]:
                continue
            step = ROUND[(ROUND.index(self.steps[who]) + 1) % len(ROUND)]
            if not (step == "has taken" and self.is_taken):
                is_taken = {"has taken": True, "has let go": False}.get(step, self.is_taken)
                yield replace(self, is_taken=is_taken, steps=put(self.steps, who, step))
            if who < 2:
                yield replace(self, alive=put(self.alive, who, False))

    def holders(self) -> list[int]:
        return [who for who in range(3) if self.steps[who] in HOLDING]


def put(values: Any, place: int, value: Any) -> Any:
    return (*values[:place], value, *values[place + 1 :])


def test_in_every_state_of_three_processes_only_the_lock_of_a_dead_worker_is_released() -> None:
    seen, waiting = {World()}, deque([World()])
    released = 0
    while waiting:
        world = waiting.popleft()
        assert len(world.holders()) == int(world.is_taken)
        for dead in (0, 1):
            if world.alive[dead]:
                continue
            decided = abandoned([MARKS[world.steps[dead]]], [[MARKS[world.steps[1 - dead]]]]) == {1} and world.is_taken
            assert not decided or world.holders() == [dead]
            assert decided or world.steps[dead] != "holds"
            released += decided
        for successor in world.successors():
            if successor not in seen:
                seen.add(successor)
                waiting.append(successor)
    assert len(seen) > 300 and released > 20


# --- what is noted


@pytest.mark.parametrize("make", [multiprocessing.Lock, multiprocessing.RLock])
def test_a_lock_is_noted_while_it_is_held(marks: memoryview, make: Any) -> None:
    first, second = make(), make()
    SharedLocks([first, second])
    with second:
        assert noted(marks) == [2]
        assert first.acquire(timeout=1)
        assert sorted(noted(marks)) == [1, 2]
        first.release()
        assert noted(marks) == [2]
    assert marks.tolist() == NOTHING


def test_a_recursive_lock_is_noted_until_its_last_release(marks: memoryview) -> None:
    lock = multiprocessing.RLock()
    SharedLocks([lock])
    with lock:
        with lock:
            assert noted(marks) == [1]
        assert noted(marks) == [1]
    assert marks.tolist() == NOTHING


def test_whoever_waits_for_a_lock_is_not_its_holder(marks: memoryview) -> None:
    lock = multiprocessing.Lock()
    SharedLocks([lock])
    lock.acquire()
    waiter = threading.Thread(target=lock.acquire, daemon=True)
    waiter.start()
    assert wait_until(lambda: sorted(noted(marks)) == [-1, 1], 20)
    lock.release()
    waiter.join(20)
    assert noted(marks) == [1]
    lock.release()
    assert marks.tolist() == NOTHING


def test_a_lock_that_could_not_be_had_is_not_noted(marks: memoryview) -> None:
    lock = multiprocessing.Lock()
    SharedLocks([lock])
    lock._semlock._semaphore.acquire()  # by another process
    assert not lock.acquire(block=False)
    assert not lock.acquire(timeout=0.01)
    assert not lock.acquire(False)
    assert marks.tolist() == NOTHING


def test_a_lock_that_another_process_released_is_noted_once_when_it_is_taken_again(marks: memoryview) -> None:
    lock = multiprocessing.Lock()
    SharedLocks([lock])
    for _ in range(3):
        lock.acquire()
        lock._semlock._semaphore.release()
    lock.acquire()
    assert noted(marks) == [1]
    lock.release()
    assert marks.tolist() == NOTHING


def test_a_release_that_is_refused_changes_nothing(marks: memoryview) -> None:
    lock, errors = multiprocessing.RLock(), []
    SharedLocks([lock])

    def release() -> None:
        try:
            lock.release()
        except AssertionError as error:
            errors.append(error)

    with lock:
        thread = threading.Thread(target=release)
        thread.start()
        thread.join(20)
        assert len(errors) == 1 and noted(marks) == [1]
    assert marks.tolist() == NOTHING
    with pytest.raises(AssertionError):
        lock.release()


def test_when_there_is_no_room_left_locks_work_without_being_noted(marks: memoryview) -> None:
    many = [multiprocessing.Lock() for _ in range(len(NOTHING) + 3)]
    SharedLocks(many)
    for lock in many:
        lock.acquire()
    assert sorted(noted(marks)) == [*range(1, len(NOTHING) + 1)]
    for lock in many:
        lock.release()
    assert marks.tolist() == NOTHING
    with many[-1]:
        assert noted(marks) == [len(many)]


def test_a_process_that_is_not_a_worker_notes_nothing() -> None:
    lock = multiprocessing.Lock()
    SharedLocks([lock])
    with lock:
        assert not lock.acquire(False)
    assert lock.acquire(False)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_of_a_worker_leaves_the_board_alone(marks: memoryview) -> None:
    held, free = multiprocessing.Lock(), multiprocessing.Lock()
    SharedLocks([held, free])
    held.acquire()
    before = marks.tolist()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            with free:
                held.release()
            code = 0 if marks.tolist() == before else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_lock_looks_as_it_did(marks: memoryview) -> None:
    lock, twin = multiprocessing.RLock(), multiprocessing.RLock()
    SharedLocks([lock])
    with lock, twin:
        assert repr(lock) == repr(twin)
    assert lock._semlock.handle and lock._semlock.maxvalue == 1 and lock._semlock.kind == twin._semlock.kind


# --- what is released


@pytest.mark.parametrize("make", [multiprocessing.Lock, multiprocessing.RLock])
def test_the_lock_of_a_dead_worker_can_be_taken_again(make: Any) -> None:
    other, lock = make(), make()
    shared = SharedLocks([other, lock])
    for _ in range(3):
        take_in_a_process_that_dies(lock)
        assert shared.release_for(words(2), [words(-2)]) == 1
        assert lock.acquire(timeout=20)
        lock.release()


@pytest.mark.parametrize(("dead", "other"), [(-1, 0), (0, 0), (1, 1)])
def test_a_lock_that_may_be_held_by_the_living_is_not_released(dead: int, other: int) -> None:
    lock = multiprocessing.Lock()
    shared = SharedLocks([lock])
    lock.acquire()
    assert shared.release_for(words(dead), [words(other)]) == 0
    assert not lock.acquire(False)


def test_a_lock_that_is_not_taken_is_not_released() -> None:
    lock = multiprocessing.Lock()
    assert SharedLocks([lock]).release_for(words(1), []) == 0
    assert lock.acquire(False) and not lock.acquire(False)


def words(*marks: int) -> memoryview:
    made = memoryview(bytearray(8 * len(NOTHING))).cast("q")
    for row, mark in enumerate(marks):
        made[row] = mark
    return made


def take_in_a_process_that_dies(lock: Any) -> None:
    child = os.fork()
    if child == 0:
        lock.acquire()
        os._exit(0)
    os.waitpid(child, 0)
