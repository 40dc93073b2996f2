"""However a loop ends, all workers together are gone within two seconds, stuck or not."""

import gc
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from drop_in.harness import Way, our_way
from leftovers import Incarnation, wait_until
from processes import datasets
from processes.datasets import STUCK, Numbers, Pictures, Stuck, assert_ended
from user_scripts import Script

LIMIT_S = 2.0
SLACK_S = 1.0
"""For a machine that does other things too."""
EXIT_S = 4.0
"""For the interpreter to end, with torch in it, while other tests use the other core; our own bound is LIMIT_S."""

pytestmark = pytest.mark.usefixtures("not_for_torch")


def lose(batches: list[Any]) -> float:
    """Drop the last reference to an iterator; seconds that took."""
    since = time.monotonic()
    batches.clear()
    gc.collect()
    return time.monotonic() - since


def assert_quick(seconds: float, processes: list[Incarnation]) -> None:
    assert seconds < LIMIT_S + SLACK_S
    assert_ended(processes, within_s=0.5)


def test_stuck_workers_of_every_kind_are_gone_within_two_seconds_all_together(way: Way, tmp_path: Path) -> None:
    """Asleep, deaf to SIGTERM, in C code that holds the GIL, stopped, waiting for a child, in a read."""
    dataset = Stuck(tmp_path, datasets.every_kind, length=20)
    batches = [iter(way.make(dataset, num_workers=len(STUCK)))]
    processes = dataset.wait_stuck(len(STUCK))
    assert len(processes) > len(STUCK), "the child of a worker is missing"
    assert_quick(lose(batches), processes)


def test_idle_workers_are_gone_at_once(way: Way) -> None:
    loader = way.make(Pictures(400), batch_size=2)
    since = time.monotonic()
    for _ in loader:
        break
    gc.collect()
    started = time.monotonic() - since
    batches = [iter(loader)]
    next(batches[0])
    assert lose(batches) < 0.5
    assert started < 10


def test_a_break_ends_stuck_workers(way: Way, tmp_path: Path) -> None:
    dataset = Stuck(tmp_path, datasets.sleep, first=1)
    processes, since = [], 0.0
    for batch in way.make(dataset, batch_size=1):
        assert int(batch) == 0
        processes = dataset.wait_stuck(2)
        since = time.monotonic()
        break
    assert_quick(time.monotonic() - since, processes)


def test_an_exception_in_the_loop_ends_the_workers(way: Way) -> None:
    workers = []

    def train() -> None:
        batches = iter(way.make(Pictures(100)))
        workers.extend(batches._workers)
        for _ in batches:
            raise ZeroDivisionError("loss")

    try:
        train()
    except ZeroDivisionError:  # its traceback holds the frame of train(), and that the iterator
        assert all(worker.is_alive() for worker in workers)
    assert_ended_soon(workers)


def assert_ended_soon(workers: list[Any]) -> None:
    assert wait_until(lambda: not any(worker.is_alive() for worker in workers), LIMIT_S)


def test_persistent_workers_end_with_their_loader(way: Way) -> None:
    loader = [way.make(Numbers(8), persistent_workers=True)]
    list(loader[0])
    workers = loader[0]._iterator._workers
    assert all(worker.is_alive() for worker in workers)
    assert lose(loader) < 0.5 + SLACK_S
    assert [worker.is_alive() for worker in workers] == [False, False]


def test_an_iterator_in_a_cycle_ends_with_the_cycle(way: Way) -> None:
    cycle: list[Any] = [iter(way.make(Pictures(100)))]
    cycle.append(cycle)
    workers = cycle[0]._workers
    next(cycle[0])
    del cycle
    gc.collect()
    assert_ended_soon(workers)


def test_an_iterator_that_was_shut_down_by_hand_gives_at_most_what_had_arrived(way: Way) -> None:
    batches = iter(way.make(Pictures(100)))
    next(batches)
    batches._shutdown_workers()
    assert_ended_soon(batches._workers)
    rest = []
    with suppress(RuntimeError, AssertionError):  # torch has no rule for this; it must only come to an end
        rest.extend(batches)
    assert len(rest) <= 4, "more than two workers may have under way"


def test_workers_can_be_terminated_one_by_one(way: Way) -> None:
    """As ultralytics does."""
    batches = iter(way.make(Numbers(8)))
    next(batches)
    workers = batches._workers
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(2)
    assert [worker.is_alive() for worker in workers] == [False, False]
    batches._shutdown_workers()


SCRIPT = """
import os, sys, time
from antifreeze import DataLoader
from torch.utils.data import Dataset


class Slow(Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index >= 2:
            print("stuck", os.getpid(), flush=True)
            open(sys.argv[0] + ".stuck", "w").close()
            time.sleep(1000)
        return index


if __name__ == "__main__":
    loader = DataLoader(Slow(), num_workers=2, multiprocessing_context=sys.argv[1], persistent_workers=True)
    batches = iter(loader)
    assert int(next(batches)) == 0
    while not os.path.exists(sys.argv[0] + ".stuck"):
        time.sleep(0.01)
    ENDING
"""


@pytest.fixture
def started(start_script: Callable[..., Script]) -> Callable[[Way, str], Script]:
    def start(way: Way, ending: str) -> Script:
        script = start_script(SCRIPT.replace("ENDING", ending), way.context or "fork")
        script.wait_line(r"stuck \d+", within_s=15)
        return script

    return start


def assert_over(script: Script, *, returncode: int) -> str:
    """The script ends within the limit and leaves nothing; gives its stderr."""
    ended = script.wait_exit(within_s=LIMIT_S + EXIT_S)
    assert ended.returncode == returncode, f"{ended}"
    script.assert_gone(within_s=0.5)
    return ended.stderr


def test_ctrl_c_ends_the_program_with_one_traceback(way: Way, started: Callable[..., Script]) -> None:
    script = started(way, "print('waiting', flush=True)\n    next(batches), next(batches)")
    script.wait_line("waiting", within_s=15)
    os.killpg(script.process.pid, signal.SIGINT)
    stderr = assert_over(script, returncode=-signal.SIGINT)
    assert stderr.count("Traceback") == 1, stderr
    assert stderr.rstrip().endswith("KeyboardInterrupt")


def test_ctrl_c_while_the_trainer_computes_ends_the_program(started: Callable[..., Script]) -> None:
    script = started(our_way("grown"), "print('computing', flush=True)\n    time.sleep(1000)")
    script.wait_line("computing", within_s=15)
    os.killpg(script.process.pid, signal.SIGINT)
    stderr = assert_over(script, returncode=-signal.SIGINT)
    assert stderr.count("Traceback") == 1, stderr


def test_the_interpreter_ends_although_workers_are_busy(way: Way, started: Callable[..., Script]) -> None:
    assert assert_over(started(way, "pass"), returncode=0) == ""


def test_an_uncaught_exception_ends_the_program_with_its_own_traceback(started: Callable[..., Script]) -> None:
    stderr = assert_over(started(our_way("grown"), "raise ZeroDivisionError('loss')"), returncode=1)
    assert stderr.count("Traceback") == 1, stderr
    assert stderr.endswith("ZeroDivisionError: loss\n")
