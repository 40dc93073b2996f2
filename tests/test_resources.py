"""A resource per process: opened once, by whoever asks first; never taken over from a parent, never closed for it."""

import copy
import gc
import os
import pickle
import threading
import timeit
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from antifreeze import per_worker
from antifreeze.resources import PerWorker


class Connection:
    """Says good-bye when it is closed, and when it is collected, as clients of databases do."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.pid = os.getpid()
        self.say("open")

    def say(self, word: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{os.getpid()} {word} of {self.pid}\n")

    def close(self) -> None:
        self.say("close")

    def __del__(self) -> None:
        self.say("collect")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def connection(log: Path) -> Iterator[PerWorker[Connection]]:
    with per_worker(partial(Connection, log)) as resource:
        yield resource


def said(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def in_a_child(action: Callable[[], object]) -> int:
    """The pid of a forked child that did this and ended well."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return pid


def test_it_is_opened_on_first_use_and_once(connection: PerWorker[Connection], log: Path) -> None:
    assert said(log) == []
    assert connection() is connection()
    assert said(log) == [f"{os.getpid()} open of {os.getpid()}"]


def test_closing_closes_it_and_the_next_call_opens_another(connection: PerWorker[Connection], log: Path) -> None:
    first = connection()
    connection.close()
    connection.close()
    assert [line.split()[1] for line in said(log)] == ["open", "close"]
    assert connection() is not first


def test_a_context_closes_it(log: Path) -> None:
    with per_worker(partial(Connection, log)) as resource:
        kept = resource()
    assert [line.split()[1] for line in said(log)] == ["open", "close"]
    del kept


def test_what_has_no_close_is_let_go() -> None:
    class Plain:
        pass

    resource = per_worker(Plain)
    seen = weakref.ref(resource())
    resource.close()
    gc.collect()
    assert seen() is None


def test_false_and_none_are_resources_too() -> None:
    opened: list[None] = []
    resource = per_worker(lambda: opened.append(None))
    assert resource() is None and resource() is None
    assert len(opened) == 1


def test_an_error_of_the_factory_is_raised_each_time_and_the_next_call_tries_again() -> None:
    answers = iter([KeyError("first"), KeyError("second"), None])

    def factory() -> str:
        error = next(answers)
        if error:
            raise error
        return "open"

    resource = per_worker(factory)
    with pytest.raises(KeyError, match="first"):
        resource()
    with pytest.raises(KeyError, match="second"):
        resource()
    assert resource() == "open"


def test_threads_that_ask_at_the_same_time_get_the_same_one(connection: PerWorker[Connection], log: Path) -> None:
    together = threading.Barrier(8)
    got: list[Connection] = []

    def ask() -> None:
        together.wait(10)
        got.append(connection())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(got) == 8 and len(set(map(id, got))) == 1
    assert len(said(log)) == 1


def test_a_forked_child_opens_its_own_and_does_nothing_to_the_parents(
    connection: PerWorker[Connection], log: Path
) -> None:
    parents = connection()

    def use() -> None:
        assert connection() is not parents
        assert connection().pid == os.getpid()
        connection.close()

    child = in_a_child(use)
    own = [f"{os.getpid()} open of {os.getpid()}"]
    assert said(log) == [*own, f"{child} open of {child}", f"{child} close of {child}", f"{child} collect of {child}"]
    assert connection() is parents


def test_a_child_that_drops_everything_does_not_close_the_parents(log: Path) -> None:
    resource = per_worker(partial(Connection, log))
    resource()

    def drop() -> None:
        nonlocal resource
        resource.close()
        del resource
        gc.collect()

    in_a_child(drop)
    assert [line.split()[1] for line in said(log)] == ["open"]
    resource.close()


def test_a_child_that_is_forked_while_another_thread_opens_does_not_wait_for_it(tmp_path: Path) -> None:
    opening, go_on = threading.Event(), threading.Event()
    parent = os.getpid()

    def factory() -> str:
        if os.getpid() == parent:
            opening.set()
            assert go_on.wait(10)
        return "open"

    resource = per_worker(factory)
    thread = threading.Thread(target=resource)
    thread.start()
    try:
        assert opening.wait(10)
        in_a_child(resource)
    finally:
        go_on.set()
        thread.join(10)


def test_neither_a_pickle_nor_a_copy_takes_the_resource_along(connection: PerWorker[Connection], log: Path) -> None:
    connection()
    others = [pickle.loads(pickle.dumps(connection)), copy.copy(connection), copy.deepcopy(connection)]
    assert len(said(log)) == 1
    for other in others:
        assert other() is not connection()
        other.close()


def test_it_says_what_it_is() -> None:
    resource = per_worker(dict)
    assert repr(resource) == "<per_worker <class 'dict'>, not open here>"
    resource()
    assert repr(resource) == "<per_worker <class 'dict'>, open here>"


def test_what_is_no_factory_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"a function that opens the resource, not 'data\.lmdb'"):
        per_worker("data.lmdb")  # type: ignore[arg-type]


def test_asking_again_costs_next_to_nothing() -> None:
    resource = per_worker(dict)
    resource()
    assert min(timeit.repeat(resource, number=1000, repeat=20)) / 1000 < 2e-6
