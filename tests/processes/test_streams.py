"""Workers that read an iterable dataset die; every item comes once, in order, bit for bit what a calm torch gives."""

import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from antifreeze.engine.worker import stream_bench
from antifreeze.errors import WorkerFrozen, WorkerLost
from drop_in.harness import TORCH, assert_identical, our_way, seed_all, tidy_up, torch_may_fork

pytestmark = pytest.mark.usefixtures("not_for_torch")


class Stream(IterableDataset[Any]):
    """Draws for every item, and dies where it is told to: at most so often."""

    def __init__(self, folder: Path, *lengths: int) -> None:
        self.folder = folder
        self.lengths = lengths
        self.fatal: dict[tuple[int, int], int] = {}
        """How often a worker dies at an item."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for number in range(self.lengths[info.id]):
            for time_ in range(self.fatal.get((info.id, number), 0)):
                self.die_once(f"{info.id}-{number}-{time_}")
            yield torch.tensor([info.id, number, random.random(), np.random.rand()]) + torch.rand(4)

    def die_once(self, name: str) -> None:
        mark = self.folder / name
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Resumable(Stream):
    """Can say where it is; counts how many items were read in all."""

    def __init__(self, folder: Path, *lengths: int) -> None:
        super().__init__(folder, *lengths)
        self.place = 0
        self.read = torch.zeros(len(lengths), dtype=torch.int64).share_memory_()

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        while self.place < self.lengths[info.id]:
            number = self.place
            self.read[info.id] += 1
            for time_ in range(self.fatal.get((info.id, number), 0)):
                self.die_once(f"{info.id}-{number}-{time_}")
            time.sleep(0.002)
            self.place += 1
            yield torch.tensor([info.id, number]) + torch.rand(2)
        self.place = 0


class WithWeights(Stream, torch.nn.Module):
    """Its `state_dict` tells of weights, and not of its place."""

    def __init__(self, folder: Path, *lengths: int) -> None:
        torch.nn.Module.__init__(self)
        super().__init__(folder, *lengths)
        self.scale = torch.nn.Linear(1, 1)


def passes_of(make: Any, dataset: Any, passes: int = 2, **options: Any) -> list[Any]:
    seed_all()
    loader = make(dataset, num_workers=len(dataset.lengths), **options)
    return [list(loader) for _ in range(passes)]


def calm(dataset: Any, passes: int = 2, **options: Any) -> list[Any]:
    with torch_may_fork():
        batches = passes_of(TORCH.make, dataset, passes, **options)
    tidy_up()
    return batches


@pytest.mark.long(but=1)
@pytest.mark.parametrize("way", ["grown", "clean"])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("place", [(0, 0), (1, 1), (1, 13), (2, 5)], ids=str)
def test_another_worker_reads_on_where_one_died(tmp_path: Path, place: tuple[int, int], kept: bool, way: str) -> None:
    dataset = Stream(tmp_path, 7, 23, 6)
    options: dict[str, Any] = {"batch_size": 3, "persistent_workers": kept}
    expected = calm(dataset, **options)
    dataset.fatal = {place: 1}
    assert_identical(expected, passes_of(our_way(way).make, dataset, **options))
    assert list(tmp_path.iterdir())


def test_the_state_of_a_module_is_no_place_in_a_stream(tmp_path: Path) -> None:
    dataset = WithWeights(tmp_path, 23, 40)
    expected = calm(dataset, batch_size=2)
    dataset.fatal = {(1, 21): 1}
    assert_identical(expected, passes_of(our_way("grown").make, dataset, batch_size=2))
    assert list(tmp_path.iterdir())


def test_all_of_them_die_again_and_again(tmp_path: Path) -> None:
    dataset = Stream(tmp_path, 30, 30)
    expected = calm(dataset, batch_size=2, persistent_workers=True)
    dataset.fatal = {(worker, number): 1 for worker in (0, 1) for number in range(3, 30, 5)}
    assert_identical(expected, passes_of(our_way("grown").make, dataset, batch_size=2, persistent_workers=True))
    assert len(list(tmp_path.iterdir())) == len(dataset.fatal)


def test_a_worker_that_dies_when_its_stream_has_ended_costs_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dataset = Stream(tmp_path, 2, 40)
    expected = calm(dataset, batch_size=2, persistent_workers=True)
    seed_all()
    loader = our_way("grown").make(dataset, num_workers=2, batch_size=2, persistent_workers=True)
    seen: list[list[Any]] = [[], []]
    for number, batch in enumerate(loader):
        seen[0].append(batch)
        if number == 10:
            os.kill(loader._iterator._workers[0].pid, signal.SIGKILL)
    seen[1] = list(loader)
    assert_identical(expected, seen)
    assert "are missing" not in capfd.readouterr().err


def test_workers_that_die_between_two_passes_cost_nothing(tmp_path: Path) -> None:
    dataset = Stream(tmp_path, 9, 11)
    expected = calm(dataset, batch_size=2, persistent_workers=True)
    seed_all()
    loader = our_way("grown").make(dataset, num_workers=2, batch_size=2, persistent_workers=True)
    first = list(loader)
    for worker in loader._iterator._workers:
        os.kill(worker.pid, signal.SIGKILL)
    assert_identical(expected, [first, list(loader)])


class Augmenter:
    def __init__(self) -> None:
        self.rng = random.Random(5)


class MakingLate(Stream):
    """Draws from objects that are made at first use, and hold generators; one of them is not needed for the first items."""

    def __init__(self, folder: Path, *lengths: int) -> None:
        super().__init__(folder, *lengths)
        self.first: Augmenter | None = None
        self.by_kind: dict[bool, Augmenter] = {}

    def __iter__(self) -> Iterator[Any]:
        for number, item in enumerate(super().__iter__()):
            if self.first is None:
                self.first = Augmenter()
            kind = number > 4
            if kind not in self.by_kind:
                self.by_kind[kind] = Augmenter()
            yield item, self.first.rng.random(), self.by_kind[kind].rng.random()


@pytest.mark.parametrize("number", [0, 5, 9], ids=["at the start", "in the middle", "at the end"])
def test_what_a_stream_made_late_in_another_pass_draws_on(tmp_path: Path, number: int) -> None:
    dataset = MakingLate(tmp_path, 9, 11)
    expected = calm(dataset, batch_size=2, passes=3, persistent_workers=True)
    seed_all()
    loader = our_way("grown").make(dataset, num_workers=2, batch_size=2, persistent_workers=True)
    seen: list[list[Any]] = [list(loader), [], []]
    for batch_number, batch in enumerate(loader):
        seen[1].append(batch)
        if batch_number == number:
            for worker in loader._iterator._workers:
                os.kill(worker.pid, signal.SIGKILL)
    seen[2] = list(loader)
    assert_identical(expected, seen)


class MakingOneAfterTheOther(Resumable):
    """Draws from generators that are made at first use, one for each kind of item."""

    def __init__(self, folder: Path, *lengths: int) -> None:
        super().__init__(folder, *lengths)
        self.by_kind: dict[int, random.Random] = {}

    def __iter__(self) -> Iterator[Any]:
        for number, item in enumerate(super().__iter__(), self.place):
            kind = number % 3
            if kind not in self.by_kind:
                self.by_kind[kind] = random.Random(kind)
            yield item, self.by_kind[kind].random()


def test_a_generator_that_is_made_before_one_that_is_waited_for_draws_once(tmp_path: Path) -> None:
    dataset = MakingOneAfterTheOther(tmp_path, 12)
    expected = calm(dataset, batch_size=2)
    dataset.fatal = {(0, 3): 1}
    assert_identical(expected, passes_of(our_way("grown").make, dataset, batch_size=2))


@pytest.mark.parametrize("seed", range(3))
def test_passes_that_are_broken_off_one_after_the_other_take_nothing_from_the_next(tmp_path: Path, seed: int) -> None:
    def broken_off(make: Any) -> list[Any]:
        seed_all(seed)
        loader = make(Stream(tmp_path, 20, 20), num_workers=2, batch_size=2, persistent_workers=True)
        return [*(next(iter(loader)) for _ in range(4)), *loader]

    with torch_may_fork():
        expected = broken_off(TORCH.make)
    tidy_up()
    assert_identical(expected, broken_off(our_way("grown").make))


def test_a_pass_that_is_broken_off_before_streams_end_is_no_stream_that_has_become_shorter(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loader = our_way("grown").make(Stream(tmp_path, 3, 3), prefetch_factor=5, batch_size=2, persistent_workers=True)
    for _ in range(3):
        next(iter(loader))
    assert len(list(loader)) == 4
    assert "Batches of this epoch are missing" not in capfd.readouterr().err


class Shrinking(Stream):
    """Has fewer items when it is read again."""

    def __iter__(self) -> Iterator[Any]:
        if any(self.folder.iterdir()):
            self.lengths = (1, 1)
        yield from super().__iter__()


def test_a_stream_that_has_become_shorter_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dataset = Shrinking(tmp_path, 9, 9)
    dataset.fatal = {(1, 6): 1}
    list(our_way("grown").make(dataset, batch_size=1))
    assert "worker 1 reads again what the training has had, and the stream ends before that" in capfd.readouterr().err


class Shuffled(Stream):
    """Counts its passes, at their start or at their end, and shuffles by that count; dies in the third one if told to."""

    epoch = 0

    def __init__(self, folder: Path, *lengths: int, counts: str) -> None:
        super().__init__(folder, *lengths)
        self.counts = counts
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        order = random.Random(self.epoch).sample(range(self.lengths[info.id]), self.lengths[info.id])
        self.epoch += self.counts == "start"
        for place, number in enumerate(order):
            if self.epoch >= 2:
                for time_ in range(self.fatal.get((info.id, place), 0)):
                    self.die_once(f"{info.id}-{place}-{time_}")
            yield torch.tensor([info.id, number])
        self.epoch += self.counts == "end"


@pytest.mark.parametrize(
    ("counts", "by"), [("start", "object"), ("end", "object"), ("start", "class"), ("end", "class")]
)
def test_a_worker_that_takes_over_in_a_later_pass_knows_how_many_there_were(
    tmp_path: Path, counts: str, by: str
) -> None:
    dataset = Shuffled(tmp_path, 20, 20, counts=counts)
    if by == "class":
        del dataset.epoch  # each worker has one of its own from its first pass on

    def passes(make: Any, *, kills: bool) -> list[Any]:
        loader = make(dataset, num_workers=2, batch_size=2, persistent_workers=True)
        seen = []
        for _ in range(2):
            seen += list(loader)
        iterator = iter(loader)
        seen += list(iterator)
        for worker in iterator._workers if kills else ():
            os.kill(worker.pid, signal.SIGKILL)
        return seen + list(loader)

    with torch_may_fork():
        expected = passes(TORCH.make, kills=False)
    tidy_up()
    dataset.fatal = {(0, 3): 1, (1, 12): 1, (1, 17): 1}
    assert_identical(expected, passes(our_way("grown").make, kills=True))


class Dealt(Stream):
    """Deals its items to the workers anew in each pass; in the second one, the first worker gets none."""

    epoch: int

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        self.epoch = getattr(self, "epoch", -1) + 1
        for number in range(0 if (self.epoch, info.id) == (1, 0) else self.lengths[info.id]):
            yield torch.tensor([self.epoch, info.id, number])


def test_a_worker_that_takes_over_where_nothing_was_to_be_read_begins_no_pass_that_is_not_due(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dataset = Dealt(tmp_path, 20, 20)

    def passes(make: Any, *, kills: bool) -> list[Any]:
        loader = make(dataset, num_workers=2, batch_size=2, persistent_workers=True, prefetch_factor=1)
        seen = []
        for number in range(4):
            for place, batch in enumerate(loader):
                seen.append(batch)
                if kills and (number, place) == (1, 4):
                    os.kill(loader._iterator._workers[0].pid, signal.SIGKILL)
        return seen

    with torch_may_fork():
        expected = passes(TORCH.make, kills=False)
    tidy_up()
    assert_identical(expected, passes(our_way("grown").make, kills=True))
    assert "are missing" not in capfd.readouterr().err


class Consumed(Stream):
    """Goes on where the last pass ended; dies before the first item of a later one, if told to."""

    def __init__(self, folder: Path, *lengths: int) -> None:
        super().__init__(folder, *lengths)
        self.todo = list(range(100))
        self.passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        for _ in range(4):
            if self.fatal and self.passes == 2:
                self.die_once("died")
            yield self.todo.pop()


@pytest.mark.parametrize("dies", [False, True])
def test_what_a_stream_keeps_from_pass_to_pass_is_named_where_it_is_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], dies: bool
) -> None:
    dataset = Consumed(tmp_path, 4)
    dataset.fatal = {(0, 0): 1} if dies else {}
    loader = our_way("grown").make(dataset, num_workers=1, batch_size=None, persistent_workers=True)
    passes = [list(loader), list(loader)]
    assert passes == [[99, 98, 97, 96], [99, 98, 97, 96] if dies else [95, 94, 93, 92]]
    told = re.findall(r"AF504 .* begins with (.*) as before the first pass", capfd.readouterr().err)
    assert told == (["dataset.todo"] if dies else [])


def test_an_item_that_ends_every_worker_is_named(tmp_path: Path) -> None:
    dataset = Stream(tmp_path, 9, 9)
    dataset.fatal = {(1, 5): 99}
    with pytest.raises(WorkerLost, match="sample 5") as caught:
        passes_of(our_way("grown").make, dataset, batch_size=2)
    assert caught.value.worker == 1


class Late(Stream):
    """Begins when its first item is asked for, as generator functions do: until then it says where it was before."""

    def __init__(self, folder: Path, *lengths: int) -> None:
        super().__init__(folder, *lengths)
        self.passes = torch.zeros(len(lengths), dtype=torch.int64).share_memory_()
        self.place: int | None = None
        self.start: int | None = None

    def state_dict(self) -> int | None:
        return self.place

    def load_state_dict(self, state: int) -> None:
        self.start = state

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        self.place, self.start = self.start or 0, None
        self.passes[info.id] += self.place == 0
        while self.place < self.lengths[info.id]:
            number, self.place = self.place, self.place + 1
            for time_ in range(self.fatal.get((info.id, number), 0)):
                if self.passes[info.id] == 2:
                    self.die_once(f"{info.id}-{number}-{time_}")
            time.sleep(0.02)
            yield torch.tensor([info.id, number])


def numbers_of(batches: list[Any]) -> list[tuple[int, int]]:
    return sorted((int(worker), int(number)) for batch in batches for worker, number in batch.tolist())


@pytest.mark.parametrize("deaths", [{(0, 1): 1}, {(1, 16): 1, (1, 17): 1}], ids=["at its start", "one after another"])
def test_where_a_stream_was_in_another_pass_is_not_where_it_is(tmp_path: Path, deaths: dict[Any, int]) -> None:
    dataset = Late(tmp_path, 20, 20)
    dataset.fatal = deaths
    for batches in passes_of(our_way("grown").make, dataset, batch_size=4, persistent_workers=True):
        assert numbers_of(batches) == [(worker, number) for worker in (0, 1) for number in range(20)]
    assert len(list(tmp_path.iterdir())) == sum(deaths.values())


def test_a_stream_that_can_say_where_it_is_is_not_read_again_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_bench, "PAUSE", 0)  # on a busy machine, a state that costs nothing can take long
    dataset = Resumable(tmp_path, 150, 150)
    dataset.fatal = {(1, 120): 1}
    batches = passes_of(our_way("grown").make, dataset, 1, batch_size=5)
    numbers = sorted((int(worker), int(number)) for batch in batches[0] for worker, number in batch.tolist())
    assert numbers == [(worker, number) for worker in (0, 1) for number in range(150)]
    assert dataset.read[0] == 150
    assert 150 < dataset.read[1] < 220


class Unrepeatable(Stream):
    """As webdataset's shuffle without a seed: begins with another item in every process."""

    def __iter__(self) -> Iterator[Any]:
        yield torch.full((4,), float(os.getpid()))
        yield from super().__iter__()


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("cls", "expected"), [(Stream, []), (Unrepeatable, ["AF504 unrepeatable-stream"])])
def test_a_stream_that_gives_other_items_when_it_is_read_again_is_named(
    tmp_path: Path, cls: type[Stream], expected: list[str], kept: bool
) -> None:
    dataset = cls(tmp_path, 12, 12)
    dataset.fatal = {(1, 7): 1}
    loader = our_way("grown").make(dataset, num_workers=2, batch_size=2, persistent_workers=kept)
    for _ in range(2):
        list(loader)
    assert [record.what.split(":")[0] for record in loader.ledger if record.kind == "doubt"] == expected


def test_a_stream_that_is_read_for_the_first_time_by_another_worker_is_not_accused(tmp_path: Path) -> None:
    loader = our_way("grown").make(Unrepeatable(tmp_path, 12, 12), num_workers=2, batch_size=2, persistent_workers=True)
    list(loader)
    os.kill(loader._iterator._workers[1].pid, signal.SIGKILL)
    list(loader)
    assert [record.what for record in loader.ledger if record.kind == "doubt"] == []


class Forgetful(Resumable):
    """As Hugging Face's: what waits in its buffer is not in its state."""

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place + 3}


Forgetful.__module__ = "datasets.iterable_dataset"


def test_a_stream_whose_state_is_known_to_leave_items_out_is_read_again_from_the_start(tmp_path: Path) -> None:
    dataset = Forgetful(tmp_path, 150, 150)
    dataset.fatal = {(1, 120): 1}
    batches = passes_of(our_way("grown").make, dataset, 1, batch_size=5)
    numbers = sorted((int(worker), int(number)) for batch in batches[0] for worker, number in batch.tolist())
    assert numbers == [(worker, number) for worker in (0, 1) for number in range(150)]
    assert dataset.read[1] == 121 + 150


class Stuck(Stream):
    """Waits at one item of one worker until the test lets it go on."""

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            while item[:2].floor().tolist() == [1, 5] and not (self.folder / "go on").exists():
                time.sleep(0.01)
            yield item


@pytest.mark.parametrize(("in_order", "of_the_other"), [(True, 6), (False, 9)])
def test_torchs_timeout_keeps_its_meaning_and_names_worker_item_and_place(
    tmp_path: Path, in_order: bool, of_the_other: int
) -> None:
    dataset = Stuck(tmp_path, 9, 9)
    iterator = iter(our_way("grown").make(dataset, num_workers=2, batch_size=2, timeout=1, in_order=in_order))
    seen: list[tuple[int, int]] = []
    while True:
        with pytest.raises(RuntimeError, match="DataLoader timed out after 1 seconds") as caught:
            seen.extend(place for batch in iterator for place in places_in(batch))
        if "while it was starting" not in str(caught.value):  # on a busy machine that takes longer
            break
    assert isinstance(caught.value, WorkerFrozen) and caught.value.worker == 1
    assert re.search(r"worker 1, batch \d+, sample 5, at .*test_streams\.py:\d+", caught.value.where or "")
    assert sorted(seen) == [(0, number) for number in range(of_the_other)] + [(1, number) for number in range(4)]
    (tmp_path / "go on").touch()
    seen.extend(
        place for batch in iterator for place in places_in(batch)
    )  # as with torch, whoever goes on gets the rest
    assert sorted(seen) == [(worker, number) for worker in (0, 1) for number in range(9)]


def places_in(batch: torch.Tensor) -> list[tuple[int, int]]:
    """Of which worker, and the how-manieth of its items, each item of a batch is."""
    return [(int(worker), int(number)) for worker, number, *_ in batch.floor().tolist()]
