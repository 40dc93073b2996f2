"""However a loop ends, all workers are gone soon, all together, stuck or not."""

import gc
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest
import torch

from antifreeze.engine.pool.ending import STOP_DEADLINE_S
from drop_in.harness import Way, our_way
from leftovers import Incarnation, wait_until
from processes import datasets
from processes.datasets import Numbers, Pictures, Stuck, assert_ended
from user_scripts import Ended, Script

LIMIT_S = 30.0
"""Other work on the machine does not make us that late. torch waits five seconds for each stuck worker, one by one."""
EXIT_S = 15.0
"""For the interpreter to end after us. With torch in it, that is half a second of work, with or without a loader."""

pytestmark = pytest.mark.usefixtures("not_for_torch")


def lose(batches: list[Any]) -> float:
    """Drop the last reference to an iterator; seconds that took."""
    gc.collect()  # now, for with torch in it that takes as long as what is measured
    since = time.monotonic()
    batches.clear()
    return time.monotonic() - since


def assert_quick(seconds: float, processes: list[Incarnation]) -> None:
    assert seconds < LIMIT_S
    assert_ended(processes)


def test_stuck_workers_of_every_kind_are_gone_soon_all_together(way: Way, tmp_path: Path) -> None:
    """Asleep, deaf to SIGTERM, in C code that holds the GIL, stopped, waiting for a child, in a read."""
    dataset = Stuck(tmp_path, datasets.every_kind, length=20)
    batches = [iter(way.make(dataset, num_workers=8))]
    processes = dataset.wait_stuck(8)
    assert len(processes) > 8, "the child of a worker is missing"
    assert_quick(lose(batches), processes)


def test_idle_workers_are_gone_at_once(way: Way) -> None:
    batches = [iter(way.make(Pictures(400), batch_size=2))]
    workers = batches[0]._workers
    next(batches[0])
    lose(batches)
    assert [worker.exitcode for worker in workers] == [0, 0], "they did not leave, they were killed"


def test_a_break_ends_stuck_workers(way: Way, tmp_path: Path) -> None:
    dataset = Stuck(tmp_path, datasets.sleep, first=1)
    processes, since = [], 0.0
    for batch in way.make(dataset, batch_size=1):
        assert int(batch) == 0
        processes = dataset.wait_stuck(2)
        since = time.monotonic()
        break
    assert_quick(time.monotonic() - since, processes)


def test_a_worker_that_has_tickets_left_leaves_without_doing_them(way: Way) -> None:
    dataset = Slow(100)
    batches = [iter(way.make(dataset, num_workers=1, prefetch_factor=20))]
    workers = batches[0]._workers
    next(batches[0])
    lose(batches)
    assert workers[0].exitcode == 0, "it did not leave, it was killed"
    assert int(dataset.visits.sum()) < 20


class Slow(Numbers):
    """Twenty of them take longer than a worker has for its end."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.visits = torch.zeros(length, dtype=torch.int64).share_memory_()

    def __getitem__(self, index: int) -> int:
        self.visits[index] += 1
        time.sleep(0.2)
        return index


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
    lose(loader)
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
import atexit, os, sys, time
atexit.register(lambda: print("over at", time.monotonic()))  # registered first, it comes last
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
    print("ending at", time.monotonic())
    ENDING
"""


@pytest.fixture
def started(start_script: Callable[..., Script]) -> Callable[[Way, str], Script]:
    def start(way: Way, ending: str) -> Script:
        script = start_script(SCRIPT.replace("ENDING", ending), way.context or "fork")
        script.wait_line(r"ending at [\d.]+", within_s=60)
        return script

    return start


def assert_over(script: Script, *, returncode: int, since: float | None = None) -> str:
    """The script is done with us within the limit, ends, and leaves nothing; gives its stderr."""
    ended = script.wait_exit(within_s=LIMIT_S + EXIT_S)
    assert ended.returncode == returncode, f"{ended}"
    script.assert_gone()
    moments = dict(re.findall(r"^(ending|over) at ([\d.]+)$", ended.stdout, re.MULTILINE))
    assert float(moments["over"]) - (since or float(moments["ending"])) < LIMIT_S, f"{ended}"
    return ended.stderr


def press_ctrl_c(script: Script) -> float:
    """Interrupt the program and all that share its terminal; when that was."""
    since = time.monotonic()
    os.killpg(script.process.pid, signal.SIGINT)
    return since


@pytest.mark.long(but=1)
def test_ctrl_c_ends_the_program_with_one_traceback(way: Way, started: Callable[..., Script]) -> None:
    script = started(way, "next(batches), next(batches)")
    stderr = assert_over(script, since=press_ctrl_c(script), returncode=-signal.SIGINT)
    assert stderr.count("Traceback") == 1, stderr
    assert stderr.rstrip().endswith("KeyboardInterrupt")


def test_ctrl_c_while_the_trainer_computes_ends_the_program(started: Callable[..., Script]) -> None:
    script = started(our_way("grown"), "time.sleep(1000)")
    stderr = assert_over(script, since=press_ctrl_c(script), returncode=-signal.SIGINT)
    assert stderr.count("Traceback") == 1, stderr


@pytest.mark.long(but=1)
def test_the_interpreter_ends_although_workers_are_busy(way: Way, started: Callable[..., Script]) -> None:
    assert assert_over(started(way, "pass"), returncode=0) == ""


def test_stuck_workers_of_several_loaders_are_gone_soon_all_together(
    started: Callable[..., Script],
) -> None:
    others = "others = [iter(loader) for loader in [DataLoader(Slow(), num_workers=1) for _ in range(3)]]"
    waiting = "[(next(other), next(other)) for other in others]"
    script = started(our_way("grown"), f"{others}\n    {waiting}\n    print('leaving at', time.monotonic())")
    assert (
        assert_over(script, returncode=0, since=float(script.wait_line(r"leaving at ([\d.]+)", within_s=60)[1])) == ""
    )


def test_an_uncaught_exception_ends_the_program_with_its_own_traceback(started: Callable[..., Script]) -> None:
    stderr = assert_over(started(our_way("grown"), "raise ZeroDivisionError('loss')"), returncode=1)
    assert stderr.count("Traceback") == 1, stderr
    assert stderr.endswith("ZeroDivisionError: loss\n")


class Cleaning(Numbers):
    """Has something to do at the end of a worker, which keeps it busy for longer than workers are asked to leave."""

    def __init__(self, note: Path) -> None:
        super().__init__(2)
        self.note = note

    def __getitem__(self, index: int) -> torch.Tensor:
        util.Finalize(None, self.clean_up, exitpriority=1)
        return super().__getitem__(index)

    def clean_up(self) -> None:
        end = time.monotonic() + STOP_DEADLINE_S + 0.5
        while time.monotonic() < end:
            pass
        self.note.touch()


def test_finalizers_of_the_user_that_work_are_waited_for_as_torch_does(tmp_path: Path) -> None:
    note = tmp_path / "note"
    assert len(list(our_way("grown").make(Cleaning(note), num_workers=1))) == 2
    assert note.exists()


def test_an_iterator_that_the_collector_finds_while_it_is_stopped_is_stopped_once(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = iter(way.make(Numbers(8)))
    next(batches)
    pool: Any = batches._epoch._pool
    await_finalizers = pool._await_finalizers
    monkeypatch.setattr(pool, "_await_finalizers", lambda: (pool.stop(), await_finalizers()))
    pool.stop()
    assert pool.is_stopped and pool._stopped


LEAVES_MEMORY = """
import os, signal, sys, time
from multiprocessing.shared_memory import SharedMemory
from antifreeze import DataLoader
from torch.utils.data import Dataset


class Scratch(Dataset):
    memory = None

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if self.memory is None:
            self.memory = SharedMemory(create=True, size=1)
            os.write(made, self.memory.name.encode() + b"\\n")
        if index == 3 and sys.argv[1] == "killed" and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


if __name__ == "__main__":
    names, made = os.pipe()
    assert len(list(DataLoader(Scratch(), num_workers=2, multiprocessing_context="fork"))) == 4
    names = os.read(names, 1000).split()
    assert len(names) >= 2
    deadline = time.monotonic() + 20
    while (left := [name for name in names if os.path.exists(b"/dev/shm/" + name)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    print(left)
"""


@pytest.mark.parametrize("worker", ["leaves", "killed"])
def test_shared_memory_that_workers_have_not_removed_is_removed(run_script: Callable[..., Ended], worker: str) -> None:
    """By multiprocessing's resource tracker, which outlives the worker that has started it."""
    assert run_script(LEAVES_MEMORY, worker).check().stdout.strip() == "[]"
