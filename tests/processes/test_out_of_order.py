"""`in_order=False`, and workers die: every batch comes once; of a stream, each worker's come in its order."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from antifreeze.errors import WorkerLost
from drop_in.harness import Way, assert_identical, our_way, seed_all
from processes.test_streams import Stream, calm, passes_of

pytestmark = pytest.mark.usefixtures("not_for_torch")

LENGTH = 90


class Deadly(Dataset[int]):
    """Some samples end the first worker that comes to them, one ends every worker."""

    def __init__(self, folder: Path, *deadly: int, always: int = -1) -> None:
        self.folder = folder
        self.deadly = deadly
        self.always = always

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        mark = self.folder / str(index)
        if index == self.always or (index in self.deadly and not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def numbers_of(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kept", [False, True])
def test_samples_that_end_workers_come_once_and_so_do_all_others(way: Way, tmp_path: Path, kept: bool) -> None:
    dataset = Deadly(tmp_path, 0, 7, 8, 33, 34, 35, 36, 89)
    loader = way.make(dataset, batch_size=3, num_workers=3, in_order=False, persistent_workers=kept)
    for _ in range(2):
        assert sorted(numbers_of(loader)) == list(range(LENGTH))
    assert {mark.name for mark in tmp_path.iterdir()} == {str(index) for index in dataset.deadly}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("prefetch_factor", [1, 4])
def test_workers_that_are_killed_at_any_moment_cost_nothing(tmp_path: Path, prefetch_factor: int) -> None:
    loader = our_way("grown").make(
        Deadly(tmp_path), batch_size=2, num_workers=3, in_order=False, prefetch_factor=prefetch_factor
    )
    iterator, seen = iter(loader), []
    for place, batch in enumerate(iterator):
        seen.append(batch)
        if place % 5 == 1:
            os.kill(iterator._workers[place % 3].pid, signal.SIGKILL)
    assert sorted(numbers_of(seen)) == list(range(LENGTH))


def test_a_sample_that_ends_every_worker_is_named(tmp_path: Path) -> None:
    loader = our_way("grown").make(Deadly(tmp_path, always=40), batch_size=2, num_workers=3, in_order=False)
    seen: list[int] = []

    def load() -> None:
        for batch in loader:
            seen.extend(numbers_of([batch]))

    with pytest.raises(WorkerLost, match="batch 20, sample 40"):
        load()
    assert len(set(seen)) == len(seen) and 40 not in seen


def by_worker(batches: list[torch.Tensor]) -> dict[int, list[torch.Tensor]]:
    """Each worker's batches, in the order in which they came."""
    found: dict[int, list[torch.Tensor]] = {}
    for batch in batches:
        found.setdefault(int(batch[0, 0]), []).append(batch)
    return dict(sorted(found.items()))


@pytest.fixture
def deadly_stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path, 20, 3, 31)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("way", ["grown", "clean"])
@pytest.mark.parametrize("kept", [False, True])
def test_every_stream_is_read_to_its_end_bit_for_bit(deadly_stream: Stream, kept: bool, way: str) -> None:
    options: dict[str, Any] = {"batch_size": 2, "persistent_workers": kept}
    expected = calm(deadly_stream, **options)
    deadly_stream.fatal = {(0, 0): 1, (0, 13): 1, (1, 2): 1, (2, 5): 1, (2, 30): 1}
    ours = passes_of(our_way(way).make, deadly_stream, in_order=False, **options)
    assert_identical([by_worker(each) for each in expected], [by_worker(each) for each in ours])
    assert len(list(deadly_stream.folder.iterdir())) == len(deadly_stream.fatal)


def test_streams_whose_workers_are_killed_at_any_moment_are_read_to_their_end(deadly_stream: Stream) -> None:
    (expected,) = calm(deadly_stream, 1, batch_size=2)
    seed_all()
    iterator = iter(our_way("grown").make(deadly_stream, batch_size=2, num_workers=3, in_order=False))
    seen = []
    for place, batch in enumerate(iterator):
        seen.append(batch)
        if place % 4 == 1 and iterator._workers[place % 3].is_alive():
            os.kill(iterator._workers[place % 3].pid, signal.SIGKILL)
    assert_identical(by_worker(expected), by_worker(seen))
