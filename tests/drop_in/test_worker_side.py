"""What user code finds in a worker."""

import multiprocessing
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, default_collate

from drop_in import datasets
from drop_in.datasets import Numbers, Places
from drop_in.harness import Maker, Way, assert_same, our_way


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_get_worker_info_says_what_torchs_says(ours: Way, workers: int) -> None:
    def case(make: Maker) -> Any:
        return list(make(Places(7), batch_size=2, num_workers=workers, collate_fn=datasets.as_is))

    batches = assert_same(ours, case)
    for number, batch in enumerate(batches):
        for _, place in batch:
            assert workers == 0 or (place["id"], place["dataset_is_this"]) == (number % workers, True)


def test_there_is_no_worker_info_in_the_parent(ours: Way) -> None:
    list(ours.make(Numbers(2)))
    assert torch.utils.data.get_worker_info() is None


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn_runs_once_in_each_worker_and_can_change_its_dataset(ours: Way, persistent: bool) -> None:
    def case(make: Maker) -> Any:
        dataset = Places(8)
        options = {"worker_init_fn": datasets.leave_note, "persistent_workers": persistent}
        loader = make(dataset, batch_size=1, collate_fn=datasets.as_is, **options)
        return [list(loader) for _ in range(2)], hasattr(dataset, "note")

    epochs, is_changed_in_the_parent = assert_same(ours, case)
    assert epochs[0][1][0][1]["note"] == "initialised by worker 1"
    assert not is_changed_in_the_parent


def test_a_forked_worker_is_to_multiprocessing_what_torchs_is() -> None:
    def case(make: Maker) -> Any:
        (batch,) = make(Processes(2), batch_size=2, num_workers=1, collate_fn=datasets.as_is)
        return batch

    assert assert_same(our_way("grown"), case) == [("ForkProcess", 1, True, "fork")] * 2


class Processes(Numbers):
    def __getitem__(self, index: int) -> Any:
        process = multiprocessing.current_process()
        numbers = process._identity  # type: ignore[attr-defined]
        return process.name.partition("-")[0], len(numbers), process.daemon, multiprocessing.get_start_method()


def test_workers_look_like_processes_and_end_with_code_0(ours: Way) -> None:
    batches = iter(ours.make(Numbers(8), batch_size=1, num_workers=2))
    workers = batches._workers
    assert [worker.is_alive() for worker in workers] == [True, True]
    assert len({worker.pid for worker in workers}) == 2
    assert [worker.daemon for worker in workers] == [True, True]
    assert [worker.exitcode for worker in workers] == [None, None]
    list(batches)
    del batches
    for worker in workers:
        worker.join(5)
    assert [worker.is_alive() for worker in workers] == [False, False]
    assert [worker.exitcode for worker in workers] == [0, 0]


def test_workers_are_listed_by_their_number(ours: Way) -> None:
    batches = iter(ours.make(datasets.Pids(4), batch_size=1, num_workers=2))
    pids = [worker.pid for worker in batches._workers]
    assert [int(batch) for batch in batches] == [*pids, *pids]


def test_batch_k_comes_from_worker_k_mod_n_however_slow_it_is(ours: Way) -> None:
    def case(make: Maker) -> Any:
        batches = make(SlowFirstWorker(8), batch_size=1, num_workers=2, collate_fn=datasets.as_is)
        return [batch[0][1]["id"] for batch in batches]

    assert assert_same(ours, case) == [0, 1] * 4


class SlowFirstWorker(Places):
    def __getitem__(self, index: int) -> Any:
        place = super().__getitem__(index)
        if place[1]["id"] == 0:
            torch.ones(2_000_000).sort()
        return place


class Record(Mapping[str, Any]):
    """Puts its field together when it is first read, which is when the batch is collated, and keeps it."""

    def __init__(self, value: Any) -> None:
        self.kept = dict(value) if isinstance(value, dict) else {}
        self.number = value

    def __iter__(self) -> Iterator[str]:
        return iter(("clip",))

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> Any:
        if key not in self.kept:
            self.kept[key] = default_collate([torch.full((500,), float(self.number)) for _ in range(3)])
        return self.kept[key]


class Records(Dataset[Any]):
    """Record `i` is full of `i`; in a tuple, because samples are seldom alone."""

    def __init__(self) -> None:
        self.records = [Record(number) for number in range(16)]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        return self.records[index], index


def test_what_user_code_collates_while_its_batch_is_collated_stays_as_it_is(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Records(), batch_size=4, num_workers=1, persistent_workers=True)
        return [[(batch["clip"], numbers) for batch, numbers in loader] for _ in range(3)]

    for epoch in assert_same(ours, case):
        assert all((clip[:, 1, 7] == numbers).all() for clip, numbers in epoch)
