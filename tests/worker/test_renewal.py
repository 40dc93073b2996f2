"""Which workers leave when they have copied enough, and which stay whatever they have copied."""

import array
import contextlib
import datetime as dt
import functools
import itertools
import multiprocessing
import operator
import os
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
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


def is_renewed(
    dataset: Any,
    *,
    stem_pid: int | None = None,
    between: Callable[[], object] = lambda: None,
    samples: int = 1000,
) -> bool:
    recipe = Recipe(dataset, default_collate, True, None, 0, 1, None)
    worker = Renewal(recipe, Heritage(stem_pid or os.getppid(), 1.0, ()))
    try:
        for look in range(LOOKS):
            worker.raise_if_due(samples=look * samples // LOOKS)
            between()
    except Renewed:
        return True
    return False


@pytest.mark.usefixtures("copies")
def test_a_worker_that_copies_and_copies_leaves() -> None:
    assert is_renewed(Texts())


def test_the_first_ticket_is_always_done(copies: list[int]) -> None:
    worker = Renewal(Recipe(Texts(), default_collate, True, None, 0, 1, None), Heritage(os.getppid(), 0.0, ()))
    worker.raise_if_due(samples=0)
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


class Every:
    """A transform that counts where nobody looks."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> None:
        self._count += 1


def counting_in_a_closure() -> Callable[[], None]:
    count = 0

    def transform() -> None:
        nonlocal count
        count += 1

    return transform


def counting_by_default(count: list[int] = [0]) -> None:  # noqa: B006
    count[0] += 1


def counting_itself() -> None:
    counting_itself.count = getattr(counting_itself, "count", 0) + 1  # type: ignore[attr-defined]


def at_random_places(array: Any) -> Callable[[], None]:
    places = random.Random(0)

    def transform() -> None:
        for _ in range(len(array) // 20):
            array[places.randrange(len(array))] += 1

    return transform


def in_records() -> Callable[[], None]:
    records = [{"seen": 0} for _ in range(10_000)]
    places = random.Random(0)

    def transform() -> None:
        for _ in range(len(records) // 20):
            records[places.randrange(len(records))]["seen"] += 1

    return transform


OF_THE_THREAD = threading.local()


def counting_in_a_thread() -> None:
    OF_THE_THREAD.count = getattr(OF_THE_THREAD, "count", 0) + 1


def of_an_average() -> Callable[[], None]:
    average = torch.zeros(3)

    def transform() -> None:
        average.numpy()[0] += 1  # which the tensor does not count as a version

    return transform


def kept_as(kind: Callable[[int], Any]) -> Callable[[], None]:
    """A transform that keeps one value of this kind, and then another."""

    def transform() -> None:
        transform.value = kind(18)  # type: ignore[attr-defined]

    transform.value = kind(17)  # type: ignore[attr-defined]
    return transform


def in_a_set() -> Callable[[], None]:
    last = {1, 2}

    def transform() -> None:
        last.remove(min(last))
        last.add(max(last) + 1)

    return transform


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize(
    "transform",
    [
        kept_as(np.float64),
        kept_as(lambda number: np.full(2, number, np.float32).mean()),
        kept_as(Decimal),
        kept_as(lambda number: dt.date(2026, 11, number)),
        kept_as(lambda number: dt.timedelta(seconds=number)),
        kept_as(lambda number: Path(str(number))),
        in_a_set(),
        functools.partial(operator.setitem, array.array("q", [0]), 0, 1),
        functools.partial(operator.setitem, memoryview(bytearray(2)), 0, 1),
        functools.partial(operator.setitem, bytearray(3 << 20), slice(0, 3 << 20), b"1" * (3 << 20)),
        Every(),
        functools.partial(Every().__call__),
        counting_in_a_closure(),
        counting_by_default,
        counting_itself,
        counting_in_a_thread,
        functools.partial(next, itertools.count()),
        functools.partial(next, iter(range(100))),
        functools.partial(deque([1], maxlen=8).append, 2),
        functools.partial(Counter(dict.fromkeys(range(100), 0)).update, [70]),
        at_random_places([0.5] * 1000),
        at_random_places(np.zeros(1_000_000)),
        at_random_places(np.zeros(100, dtype=object)),
        in_records(),
        of_an_average(),
        functools.partial(operator.iadd, bytearray(b"ab"), b"c"),
    ],
    ids=lambda transform: getattr(transform, "__name__", type(transform).__name__),
)
def test_a_worker_whose_transform_keeps_something_stays(transform: Callable[[], object]) -> None:
    dataset: Any = Texts()
    dataset.transform = transform
    assert not is_renewed(dataset, between=transform)


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize(("samples", "leaves"), [(1000, False), (100_000, True)])
def test_a_worker_stays_until_what_it_might_change_would_have_been_seen(samples: int, leaves: bool) -> None:
    """It is looked at one element in 3,907: a worker that has changed a thousand has most likely changed none of these."""
    dataset: Any = Texts()
    dataset.seen = [0] * 1_000_000
    assert is_renewed(dataset, samples=samples) is leaves


def is_renewed_in_a_child(dataset: Any, between: Callable[[], object]) -> bool:
    """In a forked process, which has the memory of this one."""
    pid = os.fork()
    if pid == 0:
        code = 2
        with contextlib.suppress(BaseException):
            code = is_renewed(dataset, between=between)
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 1)
    return bool(code)


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize(
    "make", [np.ones, torch.ones, lambda length: array.array("d", [0]) * length, lambda length: bytearray(8 * length)]
)
def test_a_worker_stays_that_has_written_anywhere_into_a_large_array(make: Callable[[int], Any]) -> None:
    dataset: Any = Texts()
    dataset.seen = make(1_000_000)
    assert is_renewed_in_a_child(dataset, lambda: dataset.seen[123_456])
    assert not is_renewed_in_a_child(dataset, functools.partial(operator.setitem, dataset.seen, 123_456, 1))


@pytest.mark.usefixtures("copies")
def test_a_worker_whose_tensor_has_changed_stays_whatever_the_default_device() -> None:
    dataset: Any = Texts()
    dataset.seen = torch.zeros(3)
    with torch.device("meta"):
        assert not is_renewed(dataset, between=lambda: dataset.seen.add_(1))


@pytest.mark.usefixtures("copies")
def test_a_worker_that_shares_something_with_other_processes_stays() -> None:
    """Another one would run worker_init_fn, and might wait at a barrier, or for an entry of a queue, without end."""
    dataset: Any = Texts()
    dataset.lock = multiprocessing.get_context("fork").Lock()
    assert not is_renewed(dataset)


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("generator", [random.Random(0), np.random.default_rng(0), torch.Generator()])
def test_a_worker_that_draws_leaves(generator: Any) -> None:
    """Whoever goes on gets the state of its generators."""
    dataset: Any = Texts()
    dataset.generator = generator
    draw = generator.seed if isinstance(generator, torch.Generator) else generator.random
    assert is_renewed(dataset, between=draw)


@pytest.mark.usefixtures("copies")
def test_a_worker_that_fills_a_cache_of_a_function_leaves() -> None:
    numbers = itertools.count(1)
    assert is_renewed(Texts(), between=lambda: cached(next(numbers)))


@functools.cache
def listed(number: int) -> list[int]:
    return [number]


@pytest.mark.usefixtures("copies")
def test_a_worker_that_fills_a_cache_which_its_dataset_holds_leaves() -> None:
    """However many results are in it at a look: generators are searched for among a few."""
    numbers = itertools.count(1)
    dataset: Any = Texts()
    dataset.read = listed
    assert is_renewed(dataset, between=lambda: [listed(next(numbers)) for _ in range(5)])
