"""The trainer's end of the clean base, without a base."""

import os
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from antifreeze.engine.backends import clean
from antifreeze.engine.wire.channel import Channel, ChannelClosed, pair

pytestmark = pytest.mark.usefixtures("not_for_torch")


def test_a_base_that_has_ended_is_noticed_although_its_channel_is_open() -> None:
    """What it was forking holds the other end, too: there is no end of file."""
    ours, theirs = pair()
    popen: Any = SimpleNamespace(pid=os.getpid(), poll=lambda: -9, returncode=-9)
    control = Channel(ours, blocking=False)
    with closing(theirs), closing(control), pytest.raises(ChannelClosed, match="exit code -9"):
        clean._Base(popen, control, lifeline=-1).grow([])


def test_the_end_of_the_program_does_not_wait_for_a_thread_that_starts_the_base(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clean, "STOP_DEADLINE_S", 0.01)
    monkeypatch.setattr(clean, "_lock", threading.Lock())
    with clean._lock:
        clean.stop_base()


def test_workers_of_another_base_hash_as_those_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else sets would have another order in a worker that takes over."""
    monkeypatch.setattr(clean.machine, "started_with", {"PYTHONHASHSEED": None}.get)
    clean._hash_seed.cache_clear()
    try:
        seed = clean._hash_seed()
        assert 0 <= int(seed) < 2**32
        assert clean._hash_seed() == seed
    finally:
        clean._hash_seed.cache_clear()
