"""Locks of multiprocessing whose holder died: a worker notes on its board which it holds, and the stem releases them.

Such a lock is a semaphore in shared memory. When its holder is killed nobody releases it, and everybody else waits for
ever. Before it forks, the stem numbers the locks that it has (`watch`); in each worker they put marks on its board, one
word each, so that no mark is ever half written::

    n     the worker holds lock n
    -n    it is taking lock n, or letting go of it: nobody can tell whether it holds it
    0     nothing

What always holds: a lock is released only if a dead worker held it for certain, and only if it is taken. A mark of -n
releases nothing, as the holder may be a process without a board: the trainer, or a worker of another loader. A worker that
leaves by itself, when it is told to, has taken what it still holds for good (`keep`).

Covered are `Lock` and `RLock`, also inside a `Value`, an `Array`, a `Condition`, an `Event`, a `Barrier` or a queue.
Counting semaphores have no holder. A lock that was made in a worker is not shared with anybody but its own children.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from multiprocessing import util
from typing import Any

from antifreeze.engine import forks

_marks: memoryview[int] | None = None
"""Where this process notes what it holds; None: it is not a worker."""
_noted: list[_Noted] = []
"""What stands in for the locks that it has inherited."""
_free: list[int] = []
"""Rows of it that say nothing; when there is none left, locks are used as ever and not noted."""


def abandoned(dead: Iterable[int], others: Iterable[Iterable[int]]) -> set[int]:
    """The locks that a dead worker certainly held, by the marks on its board and on those of all other workers."""
    claimed = {mark for marks in others for mark in marks if mark > 0}  # it was handed on
    return {mark for mark in dead if mark > 0} - claimed


class SharedLocks:
    """All locks that this process will share with those it forks; made once, before the first fork."""

    def __init__(self, locks: Sequence[Any]) -> None:
        self._semaphores = [lock._semlock for lock in locks]
        # Kept for ever: the end of such an object unmaps the semaphore, which is not its own.
        self._keys: dict[int, Any] = {}
        for number, lock in enumerate(locks, 1):
            lock._semlock = _Noted(lock._semlock, number)
            _noted.append(lock._semlock)
            lock._make_methods()

    def __len__(self) -> int:
        return len(self._semaphores)

    def release_for(self, dead: memoryview[int], others: Iterable[memoryview[int]]) -> int:
        """Release what a dead worker held; how many locks that were."""
        released = 0
        for number in abandoned(dead.tolist(), (marks.tolist() for marks in others)):
            semaphore = self._semaphores[number - 1]
            if semaphore._get_value() == 0:
                self._key_to(number).release()
                released += 1
        return released

    def _key_to(self, number: int) -> Any:
        """The same semaphore as one that anybody may release: an `RLock` wants to be released by its holder."""
        if number not in self._keys:
            semaphore = self._semaphores[number - 1]
            plain = sys.modules["multiprocessing.synchronize"].SEMAPHORE
            self._keys[number] = type(semaphore)._rebuild(semaphore.handle, plain, semaphore.maxvalue, None)
        return self._keys[number]


def watch() -> SharedLocks:
    """Number the locks of this process, and have them noted by all workers that are forked from it."""
    synchronize = sys.modules.get("multiprocessing.synchronize")
    if synchronize is None:  # then nobody has made a lock
        return SharedLocks(())
    known = list(util._afterfork_registry.values())  # type: ignore[attr-defined]  # multiprocessing's own list
    locks = [each for each in known if isinstance(each, synchronize.Lock | synchronize.RLock)]
    if locks:
        _follow_the_lock(synchronize.Condition)
        if "multiprocessing.sharedctypes" in sys.modules:
            _follow_the_lock(sys.modules["multiprocessing.sharedctypes"].SynchronizedBase)
    return SharedLocks(locks)


def note_on(marks: memoryview[int]) -> None:
    """This process is a worker, and this is the part of its board where locks are noted."""
    global _marks
    forks.call_in_children(_forget_in_child)
    _marks = marks
    _free[:] = range(len(marks))


def keep() -> None:
    """This worker leaves by itself: what its main thread holds it has taken for good, to have something done only once.

    What another thread of it holds was to be released by that one, which ends with this process.
    """
    for lock in _noted:
        lock.keep()


def _follow_the_lock(kind: type[Any]) -> None:
    """Let objects that have kept the methods of their lock, as it was when they were made, ask for them anew."""
    for name in ("acquire", "release"):
        setattr(kind, name, property(_asks_for(name), _ignores_what_is_set))


def _asks_for(name: str) -> Any:
    return lambda holder: getattr(holder._lock, name)


def _ignores_what_is_set(holder: Any, method: Any) -> None:
    """Its constructor sets what is asked for anew each time."""


class _Noted:
    """Stands in for the semaphore of a lock; does the same, and notes it."""

    __slots__ = ("_is_recursive", "_number", "_row", "_semaphore")

    def __init__(self, semaphore: Any, number: int) -> None:
        self._semaphore = semaphore
        self._number = number
        self._row: int | None = None
        """Where it is noted that this process holds it."""
        self._is_recursive = semaphore.kind == sys.modules["multiprocessing.synchronize"].RECURSIVE_MUTEX

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        if self._is_recursive and self._semaphore._is_mine():
            return self._take(block, timeout)
        try:
            row = _free.pop()  # in one step: other threads take locks, too
        except IndexError:
            return self._take(block, timeout)
        return self._take_and_note(row, block, timeout)

    def release(self) -> None:
        row = self._row
        if row is None or _marks is None or (self._is_recursive and self._semaphore._count() != 1):
            self._semaphore.release()
            return
        # All before the release: right after it another thread of ours may hold the lock, and note that.
        self._row = None
        _marks[row] = -self._number
        try:
            self._semaphore.release()
        except BaseException:  # it was not for this thread to release
            self._row = row
            _marks[row] = self._number
            raise
        _clear(row)

    def keep(self) -> None:
        """Note nothing any more, if it is this thread that holds it."""
        row = self._row
        if row is not None and self._semaphore._is_mine():
            self._row = None
            _clear(row)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._semaphore, name)

    def _take(self, block: bool, timeout: float | None) -> bool:
        is_taken: bool = self._semaphore.acquire(block, timeout)
        return is_taken

    def _take_and_note(self, row: int, block: bool, timeout: float | None) -> bool:
        assert _marks is not None  # there are free rows in workers only
        _marks[row] = -self._number
        is_taken = False
        try:
            is_taken = self._take(block, timeout)
        finally:
            stale: int | None = row
            if is_taken:
                _marks[row] = self._number
                stale, self._row = self._row, row  # there is one if another process released what we had taken
            if stale is not None:
                _clear(stale)
        return is_taken


def _clear(row: int) -> None:
    if _marks is not None:
        _marks[row] = 0
        _free.append(row)


def _forget_in_child() -> None:
    """The board is the worker's; what its children do is not for it to say."""
    global _marks
    _marks = None
    _free.clear()
