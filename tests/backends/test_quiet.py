"""Locks that are held at a fork: whoever holds one is waited for, for a while."""

import threading
import time
from typing import Any

import pytest

from antifreeze.engine.backends.choice import Hazard
from antifreeze.engine.backends.hazards import quiet
from backends.test_hazards import held, held_by_another

HAZARD = Hazard("dataset.lock", "a lock that is held now", "nobody would release it")
PATIENCE_S = 10


class Pair:
    """Two numbers that are the same, but while the lock is held."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.one = self.other = 0

    def change(self, is_at_it: threading.Event) -> None:
        with self.lock:
            self.one += 1
            is_at_it.set()
            time.sleep(0.1)
            self.other += 1


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
def test_what_a_lock_guards_is_whole_while_it_is_taken(kind: Any) -> None:
    pair, is_at_it = Pair(kind()), threading.Event()
    thread = threading.Thread(target=pair.change, args=(is_at_it,))
    thread.start()
    assert is_at_it.wait(PATIENCE_S)
    with quiet.taken([(pair.lock, HAZARD)]) as locks:
        assert locks == (((pair.lock, HAZARD),), ())
        assert pair.one == pair.other == 1
    thread.join(PATIENCE_S)
    assert quiet.can_be_taken([pair.lock])


def test_a_lock_that_is_held_for_long_is_left_to_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "PATIENCE_S", 0.01)
    with held_by_another(threading.Lock()) as lock:
        with quiet.taken([(lock, HAZARD)]) as locks:
            assert locks == ((), ((lock, HAZARD),))
        assert lock.locked()
        assert not quiet.can_be_taken([threading.Lock(), lock])


def test_where_there_is_no_other_thread_nobody_is_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet.sys, "_current_frames", lambda: {1: None})
    with held(threading.Lock()) as lock, quiet.taken([(lock, HAZARD)]) as locks:
        assert locks == (((lock, HAZARD),), ())


def test_who_takes_a_lock_at_every_fork_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "FORK_S", 0.05)
    pair, is_at_it = Pair(threading.Lock()), threading.Event()
    thread = threading.Thread(target=pair.change, args=(is_at_it,))
    thread.start()
    assert is_at_it.wait(PATIENCE_S)
    with quiet.taken([(pair.lock, HAZARD)]):
        assert pair.lock.acquire(timeout=PATIENCE_S)  # what `os.register_at_fork` was told to do before
        pair.lock.release()
    thread.join(PATIENCE_S)
    assert quiet.can_be_taken([pair.lock])
