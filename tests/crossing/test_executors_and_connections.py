"""Executors and connections → plans → executors and connections again, in one process."""

import http.client
import multiprocessing
import socket
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest

from antifreeze.engine.crossing.pickler import Parcel, send

PATIENCE_S = 10


def cross(thing: Any) -> Any:
    return Parcel(send(thing, main_names=frozenset()).detach()).open()[0]


class Named(ThreadPoolExecutor):
    """A user's subclass, with a constructor and an attribute of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(2, thread_name_prefix=name)
        self.name = name
        self.itself = self


local = threading.local()


def prepare(value: int) -> None:
    local.value = value


def prepared(_: Any = None) -> Any:
    return local.value


def test_an_executor_arrives_with_its_settings_and_without_its_threads() -> None:
    with ThreadPoolExecutor(3, "reader", prepare, (7,)) as pool:
        pool.submit(int).result(PATIENCE_S)
        with cross(pool) as copy:
            assert not copy._threads
            assert copy._max_workers == 3
            assert copy.submit(prepared).result(PATIENCE_S) == 7
            (thread,) = copy._threads
            assert thread.name.startswith("reader")


def test_an_executor_of_a_users_class_keeps_its_attributes() -> None:
    copy = cross(Named("mine"))
    assert type(copy) is Named
    assert copy.name == copy._thread_name_prefix == "mine"
    assert copy.itself is copy


def test_an_executor_that_was_shut_down_still_is() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        cross(pool).submit(int)


def test_an_executor_with_processes_starts_its_own() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), prepare, (7,)) as pool, cross(pool) as copy:
        assert not copy._processes
        assert copy.submit(prepared).result(PATIENCE_S) == 7


def test_a_pool_of_threads_arrives_with_as_many() -> None:
    with ThreadPool(2, prepare, (7,)) as pool:
        parcel = send(pool, main_names=frozenset())
        copy, _ = Parcel(parcel.detach()).open()
    try:
        assert copy.map(prepared, range(4)) == [7] * 4
        assert copy._processes == 2
    finally:
        copy.terminate()
        copy.join()


def test_a_connection_arrives_unconnected_with_its_settings() -> None:
    connection = http.client.HTTPConnection("example.org", 8080, timeout=3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection.sock = ours
        connection.request("GET", "/")  # one is under way
        copy = cross(connection)
        assert connection.sock is ours
    assert (copy.host, copy.port, copy.timeout, copy.sock) == ("example.org", 8080, 3, None)
    assert copy._HTTPConnection__state == "Idle"


def test_a_connection_without_a_timeout_of_its_own_follows_the_programs() -> None:
    connection = http.client.HTTPConnection("example.org")
    assert cross(connection).timeout is connection.timeout
