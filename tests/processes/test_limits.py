"""Limits of the system: how many descriptors there are, how high their numbers get, how much an index may drag along."""

import errno
import mmap
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from antifreeze.engine.backends import groups, process, stem
from antifreeze.observe.accounts import account_of
from antifreeze.observe.ledger import Kind
from drop_in.harness import Way, our_way
from leftovers import stop_base_process, wait_until
from processes import datasets
from processes.datasets import Dying, Numbers, Stuck, assert_ended

pytestmark = pytest.mark.usefixtures("not_for_torch")

SELECT_LIMIT = 1024
"""select() refuses descriptors from this number on."""


@contextmanager
def descriptor_limit(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def high_descriptors() -> Iterator[None]:
    """Every descriptor that is opened from here on has a number beyond select's."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * SELECT_LIMIT:
        pytest.skip("the limit on descriptors cannot be raised here")
    stop_base_process()
    with descriptor_limit(2 * SELECT_LIMIT):
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(SELECT_LIMIT)]
        yield
        for fd in opened:
            os.close(fd)
        stop_base_process()


@pytest.mark.long
@pytest.mark.usefixtures("high_descriptors")
def test_a_trainer_may_have_more_than_a_thousand_descriptors(way: Way, tmp_path: Path) -> None:
    """All there is to wait for: batches, a worker that dies, workers that have to be killed."""
    batches = iter(way.make(Numbers(6), batch_size=2))
    workers = batches._workers
    assert all(worker.is_alive() for worker in workers)
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    for worker in workers:
        worker.join(2)

    with pytest.raises(RuntimeError, match="exit code 3"):
        list(way.make(Dying(8, bad=2, note=tmp_path / "note", death=datasets.exit_3)))

    dataset = Stuck(tmp_path, datasets.sleep)
    batches = iter(way.make(dataset))
    processes = dataset.wait_stuck(2)
    batches._shutdown_workers()
    assert_ended(processes)


class FirstOneLast(Numbers):
    """A batch has memory of its own; the first comes when nearly all that may be ahead of it is there."""

    def __init__(self, length: int, *, ahead: int) -> None:
        super().__init__(length)
        self.ahead = ahead
        self.made = torch.zeros(length, dtype=torch.bool).share_memory_()

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 0:
            assert wait_until(lambda: int(self.made.sum()) >= self.ahead, 20)
        self.made[index] = True
        return torch.full((20_000,), float(index))


@pytest.mark.long
def test_a_thousand_batches_ahead_fit_into_a_limit_of_1024_descriptors(way: Way) -> None:
    dataset = FirstOneLast(2100, ahead=1390)
    with descriptor_limit(1024):
        for number, batch in enumerate(way.make(dataset, num_workers=3, prefetch_factor=1000)):
            assert bool((batch == number).all())
    assert number == 2099


class Large(Numbers):
    """A batch comes in memory of its own, as a descriptor; none before `start` is there."""

    def __init__(self, length: int, start: Path) -> None:
        super().__init__(length)
        self.start = start

    def __getitem__(self, index: int) -> torch.Tensor:
        while not self.start.exists():
            time.sleep(0.002)
        return torch.full((20_000,), float(index))


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Only so many more can be opened."""
    opened = [os.open(os.devnull, os.O_RDONLY)]
    highest = max(map(int, os.listdir("/proc/self/fd")))
    while opened[-1] < highest + count:
        opened.append(os.open(os.devnull, os.O_RDONLY))
    for _ in range(count):
        os.close(opened.pop())
    try:
        with descriptor_limit(highest + count + 1):
            yield
    finally:
        for fd in opened:
            os.close(fd)


@pytest.mark.parametrize(("left", "is_enough"), [(0, False), (3, True)])
def test_a_program_that_is_out_of_descriptors_gets_all_batches_and_leaves_nothing(
    left: int, is_enough: bool, tmp_path: Path
) -> None:
    """With none, in this process; with a few, from workers: each is used again as soon as its memory is mapped."""
    loader = our_way("grown").make(Large(60, tmp_path / "start"), num_workers=4)
    batches = iter(loader)
    assert all(worker.is_alive() for worker in batches._workers)
    (tmp_path / "start").touch()
    with descriptors_left(left):
        for number, batch in enumerate(batches):
            assert bool((batch == number).all())
    assert number == 59
    assert account_of(loader).ledger.counts[Kind.IN_PROCESS] == (not is_enough)


def test_a_stop_without_descriptors_ends_all_processes(tmp_path: Path) -> None:
    dataset = Stuck(tmp_path, datasets.sleep)
    batches = iter(our_way("grown").make(dataset))
    processes = dataset.wait_stuck(2)
    with descriptors_left(0):
        batches._shutdown_workers()
    assert_ended(processes)


class StorageOfIndex(Numbers):
    """Says how many bytes came with an index, beside the index."""

    def __getitem__(self, index: torch.Tensor) -> Any:
        return index.tolist(), index.untyped_storage().nbytes()


class Parts:
    """Indices that are views of one large tensor, as of a permutation of the whole dataset."""

    def __init__(self, cut: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
        self.cut = cut
        self.whole = torch.arange(500_000)

    def __len__(self) -> int:
        return 100

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self.cut(self.whole, number) for number in range(len(self)))


def test_indices_that_are_views_of_a_large_tensor_come_without_it(way: Way) -> None:
    options: dict[str, Any] = {"collate_fn": datasets.as_is}
    scalars = way.make(StorageOfIndex(100), sampler=Parts(lambda whole, number: whole[number]), **options)
    assert list(scalars) == [[(number, 8)] for number in range(100)]

    parts = Parts(lambda whole, number: whole[2 * number : 2 * number + 2])
    pairs = way.make(StorageOfIndex(100), sampler=parts, batch_size=None, **options)
    assert list(pairs) == [([2 * number, 2 * number + 1], 16) for number in range(100)]


def refuse_forks_in_stems(monkeypatch: pytest.MonkeyPatch, is_refused: Callable[[int], bool]) -> mmap.mmap:
    """Let stems be told by the kernel that there is no process left, by the number of their attempt; counts attempts."""
    attempts, trainer, fork = mmap.mmap(-1, 1), os.getpid(), os.fork

    def limited() -> int:
        if os.getpid() != trainer:
            attempts[0] += 1
            if is_refused(attempts[0]):
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    monkeypatch.setattr(process, "_fork_without_warning", limited)
    monkeypatch.setattr(stem, "FORK_PAUSE_S", 0.01)
    monkeypatch.setattr(process, "process_limits", lambda: ["pids.max is 8"])
    return attempts


def test_a_stem_asks_again_when_there_is_no_process_left_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_forks_in_stems(monkeypatch, lambda attempt: attempt < stem.FORK_ATTEMPTS)
    loader = our_way("grown").make(Numbers(6), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    assert len(account_of(loader).ledger) == 0


def test_a_worker_that_cannot_be_forked_is_asked_for_again_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    attempts = refuse_forks_in_stems(monkeypatch, lambda attempt: 1 < attempt < 8)
    batches = iter(our_way("grown").make(Numbers(40), batch_size=2))
    assert [batch.tolist() for batch in batches] == [[k, k + 1] for k in range(0, 40, 2)]
    assert attempts[0] >= 8
    said = capfd.readouterr().err
    assert "could not be started" in said and "Resource temporarily unavailable; pids.max is 8" in said


def test_a_worker_at_a_terminal_that_cannot_be_watched_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads no group there by which it could be killed; its stem must not wait for its end."""
    attempts, trainer, open_pidfd = mmap.mmap(-1, 1), os.getpid(), process.open_pidfd

    def limited(pid: int) -> int:
        if os.getpid() != trainer:
            attempts[0] += 1
            if attempts[0] == 1:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_pidfd(pid)

    monkeypatch.setattr(process, "open_pidfd", limited)
    monkeypatch.setattr(groups, "group_of_terminal", lambda pid: process.take_orphans() and os.getpgid(pid))
    batches = our_way("grown").make(Numbers(40), batch_size=2)
    assert [batch.tolist() for batch in batches] == [[k, k + 1] for k in range(0, 40, 2)]
    assert attempts[0] > 2


def test_where_no_worker_more_can_be_had_the_epoch_is_whole_and_the_limit_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    refuse_forks_in_stems(monkeypatch, lambda attempt: attempt > 1)
    loader = our_way("grown").make(Numbers(40), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[k, k + 1] for k in range(0, 40, 2)]
    ledger = account_of(loader).ledger
    (record,) = (record for record in ledger if record.kind is Kind.IN_PROCESS)
    assert "pids.max is 8" in record.what
    assert "pids.max is 8" in capfd.readouterr().err
