"""Where workers come from: which stem, and what it holds."""

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from drop_in.harness import Way, our_class, our_way
from leftovers import base_process, incarnation, is_running, status, wait_until
from processes import datasets
from processes.datasets import Numbers, Pictures, Stuck, Watching, assert_ended

pytestmark = pytest.mark.usefixtures("not_for_torch")

Usage = Callable[[], list[dict[str, Any]]]


@pytest.mark.parametrize(
    ("context", "stem"), [(None, "grown"), ("fork", "grown"), ("spawn", "clean"), ("forkserver", "clean")]
)
@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="the default is not fork here")
def test_the_start_method_decides_the_stem(usage: Usage, context: str | None, stem: str) -> None:
    list(our_class()(Numbers(4), num_workers=2, multiprocessing_context=context))
    assert usage() == [{"pid": os.getpid(), "engine": "antifreeze", "stem": stem, "reason": None}]


def test_a_context_object_decides_like_its_name(usage: Usage) -> None:
    for context in (multiprocessing.get_context("fork"), torch.multiprocessing.get_context("spawn")):
        list(our_class()(Numbers(4), num_workers=1, multiprocessing_context=context))
    assert [record["stem"] for record in usage()] == ["grown", "clean"]


def test_a_loader_without_workers_is_not_a_matter_of_stems(usage: Usage) -> None:
    assert [int(batch) for batch in our_class()(Numbers(4))] == [0, 1, 2, 3]
    assert usage() == []


def test_each_iterator_sees_the_dataset_as_it_is_now(way: Way) -> None:
    dataset = Watching(4)
    loader = way.make(dataset, batch_size=4)
    seen = []
    for version in range(3):
        dataset.version = version
        seen += [versions.tolist() for versions, _ in loader]
    assert seen == [[version] * 4 for version in range(3)]


def test_an_iterator_keeps_the_dataset_of_its_start(way: Way) -> None:
    dataset = Watching(40)
    batches = iter(way.make(dataset, batch_size=4))
    dataset.version = 1
    assert [set(versions.tolist()) for versions, _ in batches] == [{0}] * 10


def test_a_shared_tensor_of_the_dataset_stays_shared(way: Way) -> None:
    """The documented way to reach live workers: what the trainer writes, they see, and the other way round."""
    dataset = SharedNumbers(6)
    loader = way.make(dataset, batch_size=2, persistent_workers=True)
    first = [batch.tolist() for batch in loader]
    dataset.factor.fill_(10)
    assert first == [[0, 1], [2, 3], [4, 5]]
    assert [batch.tolist() for batch in loader] == [[0, 10], [20, 30], [40, 50]]
    assert dataset.visits.tolist() == [2] * 6


class SharedNumbers(Numbers):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.factor = torch.ones(1, dtype=torch.int64).share_memory_()
        self.visits = torch.zeros(length, dtype=torch.int64).share_memory_()

    def __getitem__(self, index: int) -> int:
        self.visits[index] += 1
        return int(index * self.factor)


def test_a_worker_may_use_a_pool_of_processes(way: Way) -> None:
    assert [batch[0] for batch in way.make(Pooling(4), collate_fn=datasets.as_is)] == [0, 1, 4, 9]


class Pooling(Numbers):
    def __getitem__(self, index: int) -> int:
        context = multiprocessing.get_context("fork")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                return pool.submit(square, index).result(10)


def square(number: int) -> int:
    return number * number


def test_a_worker_may_use_a_loader_of_its_own(way: Way) -> None:
    assert [batch[0] for batch in way.make(Nested(3), collate_fn=datasets.as_is)] == [[0, 1], [1, 2], [2, 3]]


class Nested(Numbers):
    def __getitem__(self, index: int) -> list[int]:
        inner = our_class()(range(index, index + 2), num_workers=1, multiprocessing_context="fork")
        return [int(batch) for batch in inner]


def test_threads_in_the_trainer_cause_no_warning(way: Way) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, args=(30,), daemon=True)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [int(batch) for batch in way.make(Numbers(4))] == [0, 1, 2, 3]
    finally:
        stop.set()
        thread.join(5)


def test_workers_are_leaders_of_their_own_process_groups(way: Way) -> None:
    batches = iter(way.make(Numbers(4)))
    next(batches)
    for worker in batches._workers:
        assert os.getpgid(worker.pid) == (os.getpgrp() if has_terminal() else worker.pid)


def has_terminal() -> bool:
    """Whether these tests are run at a terminal: then workers are in the trainer's group (test_terminal.py)."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def test_one_clean_base_serves_all_loaders_of_a_trainer() -> None:
    list(our_way("clean").make(Numbers(4)))
    first, _ = base_process()
    list(our_way("clean").make(Numbers(4)))
    second, _ = base_process()
    assert len(first) == 1
    assert first == second


def test_a_clean_base_that_died_is_replaced() -> None:
    list(our_way("clean").make(Numbers(4)))
    (first,), _ = base_process()
    os.kill(first, 9)
    assert [int(batch) for batch in our_way("clean").make(Numbers(4))] == [0, 1, 2, 3]
    (second,), _ = base_process()
    assert second != first


def test_workers_go_on_without_their_stem_and_end_with_their_iterator(way: Way, tmp_path: Path) -> None:
    batches = iter(way.make(Pictures(60), batch_size=2))
    workers = batches._workers
    seen = [next(batches)[1].tolist()]
    kill_stem_of(workers)
    seen += [labels.tolist() for _, labels in batches]
    assert seen == [[number, number + 1] for number in range(0, 60, 2)]
    assert [worker.is_alive() for worker in workers] == [False, False]

    dataset = Stuck(tmp_path, datasets.wait_for_a_child, first=1)
    batches = iter(way.make(dataset))
    processes = dataset.wait_stuck(2)
    kill_stem_of(batches._workers)
    assert all(worker.is_alive() for worker in batches._workers)
    del batches
    assert_ended(processes)


def test_a_worker_that_dies_after_its_stem_is_replaced_from_another(way: Way) -> None:
    batches = iter(way.make(Numbers(1000), batch_size=2))
    seen = [next(batches).tolist()]
    kill_stem_of(batches._workers)
    batches._workers[1].kill()
    seen += [batch.tolist() for batch in batches]
    assert seen == [[k, k + 1] for k in range(0, 1000, 2)]


def kill_stem_of(workers: list[Any]) -> None:
    """The stem is the parent of its workers; wait until they have another."""
    (stem,) = {status(worker.pid)[1] for worker in workers}
    assert stem != os.getpid()
    os.kill(stem, signal.SIGKILL)
    assert wait_until(lambda: all(status(worker.pid)[1] != stem for worker in workers), 5)


def test_a_clean_worker_has_no_thread_but_its_own_and_nothing_of_the_trainers() -> None:
    marker = threading.Event()
    thread = threading.Thread(target=marker.wait, args=(30,), name="trainer's", daemon=True)
    thread.start()
    try:
        (seen,) = next(iter(our_way("clean").make(Threads(2), num_workers=1, collate_fn=datasets.as_is)))
    finally:
        marker.set()
        thread.join(5)
    assert seen == ["MainThread"]


class Threads(Numbers):
    def __getitem__(self, index: int) -> list[str]:
        return [thread.name for thread in threading.enumerate()]


def test_classes_and_functions_of_the_trainer_come_back_as_themselves(way: Way) -> None:
    class Local:
        count = 0

        def __init__(self, number: int) -> None:
            self.number = number

    class Makes(Numbers):
        def __getitem__(self, index: int) -> Any:
            Local.count += 1
            return Local(index)

    Local.count = 41
    batches = list(way.make(Makes(4), collate_fn=lambda samples: samples))
    assert all(type(batch[0]) is Local for batch in batches)
    assert [batch[0].number for batch in batches] == [0, 1, 2, 3]
    assert Local.count == 41


def test_a_file_that_the_dataset_holds_open_has_its_own_offset_in_each_worker(tmp_path: Any) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"".join(b"%05d" % number for number in range(2000)))
    with path.open("rb") as file:
        batches = our_way("grown").make(OpenFile(file, 2000), batch_size=50, num_workers=3)
        assert [number for batch in batches for number in batch.tolist()] == list(range(2000))


class OpenFile(Numbers):
    def __init__(self, file: Any, length: int) -> None:
        super().__init__(length)
        self.file = file

    def __getitem__(self, index: int) -> int:
        self.file.seek(index * 5)
        return int(self.file.read(5))


class InASession(Numbers):
    """Starts a process of its own, in a session that a worker has begun, and tells both."""

    def __getitem__(self, index: int) -> tuple[int, int, int, int]:
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        return os.getpid(), os.getsid(0), os.getpgid(child), child


def begin_session(worker: int) -> None:
    os.setsid()
    with pytest.raises(PermissionError):  # as anywhere, it leads one already
        os.setsid()


def test_a_worker_may_lead_a_session_and_all_that_it_started_ends_with_it(way: Way) -> None:
    batches = iter(way.make(InASession(2), worker_init_fn=begin_session, num_workers=1, collate_fn=datasets.as_is))
    ((pid, session, group, child),) = next(batches)
    assert pid == session == group
    who = incarnation(child)
    assert who is not None
    batches._shutdown_workers()
    assert wait_until(lambda: not is_running(who), 5)
