"""What does not survive a fork is found where it is live, and not where it is not."""

import asyncio
import contextlib
import functools
import http.client
import logging
import multiprocessing
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import lmdb
import pytest
import torch

from antifreeze import machine
from antifreeze.engine.backends.hazards import libraries
from antifreeze.engine.backends.hazards.libraries import deadly_libraries
from antifreeze.engine.backends.hazards.search import find_hazards, present

FORK = multiprocessing.get_context("fork")
PATIENCE_S = 10


def found_in(thing: Any) -> str | None:
    """What is said of a dataset that holds this."""
    found = find_hazards({"dataset": SimpleNamespace(held=thing)})
    assert len(found.mended) == len(found.broken) <= 1
    hazards = [*found.mended, *found.hazards, *(hazard for _, hazard in found.locks)]
    return str(hazards[0]).partition(":")[0] if hazards else None


@contextlib.contextmanager
def connected() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


@contextlib.contextmanager
def http_connection() -> Iterator[Any]:
    connection = http.client.HTTPConnection("localhost")
    with connected() as sock:
        connection.sock = sock
        yield connection


@contextlib.contextmanager
def used_thread_pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result(PATIENCE_S)
        yield pool


@contextlib.contextmanager
def used_process_pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=FORK) as pool:
        pool.submit(int).result(PATIENCE_S)
        yield pool


@contextlib.contextmanager
def open_loop() -> Iterator[Any]:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        yield loop


@contextlib.contextmanager
def running_thread() -> Iterator[threading.Thread]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, args=(PATIENCE_S,), name="reader of the dataset")
    thread.start()
    try:
        yield thread
    finally:
        end.set()
        thread.join(PATIENCE_S)


@contextlib.contextmanager
def held(lock: Any) -> Iterator[Any]:
    with lock:
        yield lock


@contextlib.contextmanager
def held_by_another(lock: Any) -> Iterator[Any]:
    is_held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            end.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(PATIENCE_S)
    try:
        yield lock
    finally:
        end.set()
        thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (connected, "dataset.held is an open socket"),
        (http_connection, "dataset.held is a connection"),
        (used_thread_pool, "dataset.held is a thread pool in use"),
        (used_process_pool, "dataset.held is a process pool"),
        (lambda: FORK.Pool(1), "dataset.held is a running pool"),
        (lambda: ThreadPool(1), "dataset.held is a running pool"),
        (open_loop, "dataset.held is an event loop"),
        (running_thread, "dataset.held is a running thread"),
        (lambda: held(threading.Lock()), "dataset.held is a lock that is held now"),
        (lambda: held_by_another(threading.Lock()), "dataset.held is a lock that is held now"),
        (lambda: held_by_another(threading.RLock()), "dataset.held is a lock that is held now"),
        (lambda: held_by_another(threading.Condition()), "dataset.held._lock is a lock that is held now"),
    ],
)
def test_what_a_fork_breaks_is_found_while_it_is_live(make: Callable[[], Any], said: str) -> None:
    with make() as thing:
        assert found_in(thing) == said
        assert found_in({"a": [thing]}) == said.replace("held", "held['a'][0]", 1)


@pytest.mark.parametrize(
    "make", [connected, http_connection, used_thread_pool, used_process_pool, open_loop, running_thread]
)
def test_what_is_over_is_no_hazard(make: Callable[[], Any]) -> None:
    with make() as thing:
        pass
    assert found_in(thing) is None


@pytest.mark.parametrize(
    "harmless",
    [
        ThreadPoolExecutor(1),
        threading.Lock(),
        threading.RLock(),
        threading.Condition(),
        threading.Event(),
        threading.Thread(target=int),
        threading.main_thread(),
        queue.Queue(),
        http.client.HTTPConnection("localhost"),
        logging.getLogger(__name__),
        torch.ones(3),
        torch.nn.Linear(2, 2),
        Path(),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_what_survives_a_fork_is_no_hazard(harmless: Any) -> None:
    assert found_in(harmless) is None


def test_a_lock_that_the_forking_thread_holds_can_be_taken_again_in_its_child() -> None:
    with held(threading.RLock()) as lock:
        assert found_in(lock) is None


def test_a_queue_of_multiprocessing_looks_after_its_own_thread() -> None:
    handle = FORK.Queue()
    handle.put(1)  # which starts a thread
    try:
        assert found_in(handle) is None
    finally:
        handle.get(timeout=PATIENCE_S)
        handle.close()
        handle.join_thread()


def test_an_lmdb_environment_is_a_hazard_for_its_table_of_readers(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as environment:
        assert found_in(environment) == "dataset.held is an LMDB environment"
    assert found_in(environment) is None
    with lmdb.open(str(tmp_path), lock=False) as environment:
        assert found_in(environment) is None


@pytest.mark.parametrize(
    "hold",
    [
        lambda environment: (environment,),
        lambda environment: environment.begin,
        lambda environment: functools.partial(environment.begin),
        lambda environment: environment.begin(),
        lambda environment: environment.begin().cursor(),
        lambda environment: environment.open_db(b"images"),
        lambda environment: environment.begin().get,
    ],
    ids=["tuple", "method", "partial", "transaction", "cursor", "database", "method of a transaction"],
)
def test_an_lmdb_environment_that_cannot_be_exchanged_is_left_as_it_is(
    hold: Callable[[lmdb.Environment], Any], tmp_path: Path
) -> None:
    with lmdb.open(str(tmp_path), max_dbs=1) as environment:
        found = find_hazards({"dataset": SimpleNamespace(environment=environment, held=hold(environment))})
        assert (found.mended, found.broken) == ((), ())
        assert [hazard.what for hazard in found.hazards] == ["an LMDB environment"]


def test_what_may_freeze_is_found_behind_what_does_not() -> None:
    with connected() as sock, open_loop() as loop:
        found = find_hazards({"dataset": SimpleNamespace(sock=sock, inner=SimpleNamespace(loop=loop))})
    assert [(hazard.what, hazard.may_freeze) for hazard in found.hazards] == [
        ("an open socket", False),
        ("an event loop", True),
    ]


def test_who_waits_in_a_condition_guards_nothing() -> None:
    condition = threading.Condition()

    def wait() -> None:
        with condition:
            condition.wait(PATIENCE_S)

    thread = threading.Thread(target=wait)
    thread.start()
    while not condition._waiters:  # type: ignore[attr-defined]
        pass
    found = find_hazards({"dataset": condition})
    with condition:
        condition.notify()
    thread.join(PATIENCE_S)
    assert (len(found.locks), len(found.broken)) == (0, 1)


def test_functions_are_searched_too() -> None:
    with connected() as sock:
        roots = {"dataset": range(3), "collate_fn": lambda samples: [sock.send(each) for each in samples]}
        (hazard,) = find_hazards(roots).hazards
    assert hazard.path == "collate_fn.<sock>"


# --- libraries


@pytest.fixture
def polars(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package of this name, as far as it matters here."""
    module = ModuleType("polars")
    vars(module)["DataFrame"] = type("DataFrame", (), {"__module__": "polars.frame"})
    monkeypatch.setitem(sys.modules, "polars", module)
    monkeypatch.setattr(machine, "thread_names", lambda: ["python", "polars-0", "polars-1"])
    return module


def test_polars_is_a_hazard_for_who_uses_it_once_its_pool_has_started(
    polars: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found_in(polars.DataFrame()) == "dataset.held is part of polars"
    assert found_in(polars.DataFrame) == "dataset.held is part of polars"
    assert found_in(polars) == "dataset.held is part of polars"
    assert found_in([1, 2, 3]) is None
    monkeypatch.setattr(machine, "thread_names", lambda: ["python", "polars-ooc-clea", "jemalloc_bg_thd"])
    assert found_in(polars.DataFrame()) is None  # only imported


@pytest.mark.parametrize(
    ("setting", "is_deadly"),
    [(None, False), ("false", False), ("0", False), ("Off", False), ("true", True), ("1", True)],
)
def test_tokenizers_are_a_hazard_if_they_are_made_to_use_threads(
    setting: str | None, is_deadly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", ModuleType("tokenizers"))
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if setting is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", setting)
    assert ("tokenizers" in {library.package for library in deadly_libraries()}) is is_deadly


def test_libraries_that_are_not_loaded_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    monkeypatch.setattr(libraries.machine, "thread_names", lambda: pytest.fail("/proc was read"))
    assert "polars" not in {library.package for library in deadly_libraries()}


def test_what_may_freeze_a_worker_can_be_named(polars: ModuleType) -> None:
    with running_thread():
        named = present()
    assert ("polars", "its thread pool has been started, and does not survive a fork") in named.libraries
    assert "reader of the dataset" in named.threads
    assert threading.current_thread().name not in named.threads
    assert not named.is_cuda_initialized
