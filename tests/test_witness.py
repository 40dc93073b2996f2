"""What is learned about workers from outside."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from antifreeze import machine
from antifreeze.engine.witness import Witness
from antifreeze.machine import families, processes


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that waits in a pipe."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    yield pid
    os.close(write)
    os.waitpid(pid, 0)


def worker(seat: int, pid: int | None, *, stem: int = 0) -> Any:
    return SimpleNamespace(seat=seat, known_pid=pid, stem=SimpleNamespace(pid=stem))


def test_all_workers_are_seen_in_one_look_at_the_processes(monkeypatch: pytest.MonkeyPatch, sleeper: int) -> None:
    looks, look = [], processes.numbers_in_proc
    monkeypatch.setattr(families, "numbers_in_proc", lambda: looks.append("look") or look())
    seen = Witness().look_at([worker(3, os.getpid()), worker(4, sleeper)])
    assert sorted(seen) == [3, 4]
    assert seen[3].cpu_s > seen[4].cpu_s  # type: ignore[index]
    assert looks == ["look"]


def test_nothing_is_seen_of_a_worker_that_is_gone(sleeper: int) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert sorted(Witness().look_at([worker(1, pid), worker(2, sleeper)])) == [2]


def test_of_a_worker_that_is_not_born_its_stem_alone_is_seen(monkeypatch: pytest.MonkeyPatch, sleeper: int) -> None:
    monkeypatch.setattr(
        machine.Families, "facts_of", lambda self, pids: pytest.fail("the workers of a stem are not the stem")
    )
    (seen,) = Witness().look_at([worker(1, None, stem=sleeper)]).values()
    assert not seen.is_stopped and not seen.is_traced


@pytest.mark.parametrize("is_its_own", [True, False], ids=["of its own", "that others read, too"])
def test_a_second_worker_would_take_from_others_what_comes_out_of_a_pipe(is_its_own: bool) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        if is_its_own:
            read, own = os.pipe()
            os.write(own, b"")
        os.read(read, 1)
        os._exit(0)
    try:
        while (facts := machine.process_facts(pid)) is not None and facts.waits_in != "pipe":
            time.sleep(0.01)
        assert Witness().may_take_from_others(worker(1, pid, stem=pid if not is_its_own else 0)) is not is_its_own
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "its own"])
def test_a_lock_that_processes_share_is_known(is_shared: bool) -> None:
    lock: Any = multiprocessing.get_context("fork").Lock() if is_shared else threading.Lock()
    lock.acquire()
    pid = os.fork()
    if pid == 0:
        lock.acquire()
        os._exit(0)
    try:
        while (facts := machine.process_facts(pid)) is not None and facts.waits_in != "lock":
            time.sleep(0.01)
        assert Witness().shares_its_lock(worker(1, pid)) is is_shared
        assert Witness().may_take_from_others(worker(1, pid)) is is_shared
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
