"""Loaders, iterators and batches may move between threads, and the trainer may fork."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from drop_in.harness import Way
from leftovers import wait_until
from processes.datasets import Numbers, Pictures
from user_scripts import Ended

pytestmark = pytest.mark.usefixtures("not_for_torch")


def in_thread(action: Callable[[], Any]) -> Any:
    """The result of an action that ran in a thread which is over."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(action()), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the thread hangs"
    assert results, "the thread failed"
    return results[0]


def test_workers_outlive_the_thread_that_started_them(way: Way) -> None:
    loader = way.make(Pictures(40), batch_size=2)
    batches = in_thread(lambda: iter(loader))
    seen = [next(batches), in_thread(lambda: next(batches)), *batches]
    assert [labels.tolist()[0] for _, labels in seen] == list(range(0, 40, 2))


def test_persistent_workers_outlive_the_thread_that_started_them(way: Way) -> None:
    loader = way.make(Numbers(6), batch_size=2, persistent_workers=True)
    epochs = [in_thread(lambda: [batch.tolist() for batch in loader]) for _ in range(3)]
    assert epochs == [[[0, 1], [2, 3], [4, 5]]] * 3


def test_several_threads_may_iterate_over_one_loader(way: Way) -> None:
    loader = way.make(Pictures(24), batch_size=2)
    results: list[list[Any]] = []
    threads = [
        threading.Thread(target=lambda: results.append([labels.tolist() for _, labels in loader]), daemon=True)
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert results == [[[number, number + 1] for number in range(0, 24, 2)]] * 3


def test_several_threads_may_share_one_iterator(way: Way) -> None:
    batches = iter(way.make(Pictures(60), batch_size=2))
    lock, seen = threading.Lock(), []

    def consume() -> None:
        while True:
            with lock:
                batch = next(batches, None)
            if batch is None:
                return
            pictures, labels = batch
            assert torch.equal(pictures[:, 0, 0, 0], labels.float())
            seen.extend(labels.tolist())

    threads = [threading.Thread(target=consume, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(seen) == list(range(60))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_keeps_the_batches_it_had(way: Way) -> None:
    """The trainer goes on and reuses memory; what the child sees must not change under it."""
    batches = iter(way.make(Pictures(80), batch_size=2))
    kept = [next(batches) for _ in range(3)]
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            os.close(theirs)
            os.read(ours, 1)  # until the trainer is done
            code = 0 if all(is_intact(batch) for batch in kept) else 2
        finally:
            os._exit(code)
    os.close(ours)
    kept.clear()
    rest = [labels.tolist() for pictures, labels in batches if is_intact((pictures, labels))]
    os.close(theirs)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child's batches changed"
    assert len(rest) == 37


def is_intact(batch: Any) -> bool:
    pictures, labels = batch
    return all(bool((picture == label).all()) for picture, label in zip(pictures, labels.tolist(), strict=True))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_that_drops_an_iterator_does_not_disturb_the_trainer(way: Way) -> None:
    batches = [iter(way.make(Pictures(40), batch_size=2))]
    next(batches[0])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            batches.clear()  # as the child's interpreter does when it ends
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [labels.tolist()[0] for _, labels in batches[0]] == list(range(2, 40, 2))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("ahead", [False, True])
def test_a_forked_child_that_goes_on_with_an_iterator_is_told_whose_it_is(way: Way, ahead: bool) -> None:
    """Also when the trainer had the next batch already."""
    batches = iter(way.make(FirstOneLast(12) if ahead else Pictures(12)))
    next(batches)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            next(batches)
        except RuntimeError as error:
            code = 0 if "belongs to the process that made it" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [int(labels) for _, labels in batches] == list(range(1, 12))


class FirstOneLast(Pictures):
    """Sample 0 comes when worker 1 is at its second: then its first has arrived, and waits for its turn."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.begun = torch.zeros(length, dtype=torch.bool).share_memory_()

    def __getitem__(self, index: int) -> Any:
        self.begun[index] = True
        assert index > 0 or wait_until(lambda: bool(self.begun[3]), 20)
        return super().__getitem__(index)


@pytest.mark.long(but=1)
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_may_use_a_loader_of_its_own(way: Way) -> None:
    loader = way.make(Numbers(6), batch_size=2)
    list(loader)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            code = 0 if [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]] else 2
            stop_own_base()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]


def stop_own_base() -> None:
    from leftovers import stop_base_process

    stop_base_process()


IN_AN_EXECUTOR = """
import asyncio, sys
from antifreeze import DataLoader

class Talking:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        print("sample", index)
        return index

async def main():
    print(sorted(await asyncio.to_thread(lambda: [int(batch) for batch in DataLoader(Talking(), num_workers=2)])))

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_workers_that_begin_in_a_thread_of_an_executor_end_in_silence_and_say_what_they_had_to(
    run_script: Callable[..., Ended],
) -> None:
    """Python has their executor's threads joined at their end, of which the only one that is left is their own."""
    ended = run_script(IN_AN_EXECUTOR).check()
    assert sorted(ended.stdout.splitlines()) == ["[0, 1]", "sample 0", "sample 1"]
    assert ended.stderr == ""
