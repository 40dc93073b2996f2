"""Which workers leave when they have copied enough, and which stay whatever they have copied."""

import functools
import itertools
import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import default_collate

from antifreeze import machine
from antifreeze.engine.worker import renewal
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.renewal import Heritage, Renewal, Renewed
from antifreeze.machine import Memory

MB = 1 << 20
LOOKS = 10


COUNTS = {"samples": 0}


class Level:
    now = 0


@functools.cache
def cached(number: int) -> bytes:
    return bytes(number)


class Texts:
    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """This process copies 4 MB between any two looks; the list is as long as the number of looks."""
    seen: list[int] = []

    def look(_: Any) -> Memory:
        seen.append(len(seen))
        return Memory(100 * MB, 4 * MB * len(seen), 0)

    monkeypatch.setattr(machine, "memory_since", look)
    monkeypatch.setattr(machine, "faulted_bytes", functools.partial(next, itertools.count(0, 100 * MB)))
    clock = SimpleNamespace(monotonic=lambda: 1.0 + len(seen), thread_time=lambda: 0.0)  # a look a second
    monkeypatch.setattr(renewal, "time", clock)
    return seen


def is_renewed(dataset: Any, *, stem_pid: int | None = None, between: Callable[[], object] = lambda: None) -> bool:
    recipe = Recipe(dataset, default_collate, True, None, 0, 1, None)
    worker = Renewal(recipe, Heritage(stem_pid or os.getppid(), 1.0, ()))
    try:
        for _ in range(LOOKS):
            worker.raise_if_due()
            between()
    except Renewed:
        return True
    return False


@pytest.mark.usefixtures("copies")
def test_a_worker_that_copies_and_copies_leaves() -> None:
    assert is_renewed(Texts())


def test_the_first_ticket_is_always_done(copies: list[int]) -> None:
    worker = Renewal(Recipe(Texts(), default_collate, True, None, 0, 1, None), Heritage(os.getppid(), 0.0, ()))
    worker.raise_if_due()
    assert copies == []


def test_a_worker_whose_dataset_has_changed_stays_and_is_looked_at_no_more(copies: list[int]) -> None:
    dataset = Texts()

    def count() -> None:
        dataset.count += 1

    assert not is_renewed(dataset, between=count)
    assert copies == []


@pytest.mark.usefixtures("copies")
def test_a_worker_without_a_stem_stays() -> None:
    assert not is_renewed(Texts(), stem_pid=os.getpid())


@pytest.mark.usefixtures("copies")
def test_a_worker_with_a_thread_stays() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert not is_renewed(Texts())
    finally:
        done.set()
        thread.join()


class Shy(Texts):
    """Does not like to be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __init__(self) -> None:
        pass


@pytest.mark.usefixtures("copies")
def test_a_dataset_that_does_not_like_to_be_looked_at_is_not_asked() -> None:
    renewed = is_renewed(Shy())
    assert renewed


def test_where_the_kernel_does_not_tell_workers_stay(monkeypatch: pytest.MonkeyPatch, copies: list[int]) -> None:
    monkeypatch.setattr(machine, "memory_since", copies.append)
    assert not is_renewed(Texts())
    assert len(copies) == 1


@pytest.mark.parametrize(("left", "leaves"), [(0.1, True), (0.2, False)])
def test_a_worker_that_grows_and_grows_leaves_when_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, copies: list[int], left: float, leaves: bool
) -> None:
    def look(_: Any) -> Memory:
        copies.append(len(copies))
        return Memory(100 * MB, 0, 100 * MB * len(copies))

    monkeypatch.setattr(machine, "memory_since", look)
    monkeypatch.setattr(machine, "total_memory", lambda: 1000 * MB)
    monkeypatch.setattr(machine, "available_memory", lambda: int(left * 1000 * MB))
    assert is_renewed(Texts()) is leaves


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("what", ["a global", "an entry of a global", "an attribute of a class"])
def test_a_worker_whose_code_keeps_something_outside_the_dataset_stays(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.count(1)

    def change() -> None:
        match what:
            case "a global":
                monkeypatch.setitem(globals(), "LOOKS", LOOKS + 1)
            case "an entry of a global":
                monkeypatch.setitem(COUNTS, "samples", next(numbers))
            case _:
                monkeypatch.setattr(Level, "now", next(numbers))

    assert not is_renewed(Texts(), between=change)


@pytest.mark.usefixtures("copies")
def test_a_worker_that_fills_a_cache_of_a_function_leaves() -> None:
    numbers = itertools.count(1)
    assert is_renewed(Texts(), between=lambda: cached(next(numbers)))
