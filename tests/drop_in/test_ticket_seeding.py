"""`seeding="ticket"`: batches follow from the seed, the epoch and the place in it, whoever makes them, and when."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Sampler

from antifreeze import DataLoader, Retry
from antifreeze.engine import seclusion, sharing
from antifreeze.errors import ConfigError
from antifreeze.observe import say
from drop_in.harness import Way, assert_identical, generator_states, our_way, seed_all

pytestmark = pytest.mark.usefixtures("not_for_torch")

LENGTH = 21


class Drawing(Dataset[Any]):
    """Samples draw from all that there is to draw from, a generator that is made at first use included."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(3)
        self.torchs = torch.Generator().manual_seed(5)
        self.lazy: np.random.Generator | None = None

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[float, ...]:
        if self.lazy is None:
            self.lazy = np.random.default_rng()
        held = self.own.random(), self.lazy.random(), torch.rand((), generator=self.torchs).item()
        return index, torch.rand(()).item(), random.random(), np.random.rand(), *held


def epochs_of(make: Any, *, epochs: int = 2, **options: Any) -> list[Any]:
    seed_all()
    loader = make(options.pop("dataset", None) or Drawing(), seeding="ticket", batch_size=2, **options)
    return [list(loader) for _ in range(epochs)]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("kept", [False, True])
def test_batches_are_the_same_with_any_number_of_workers(ours: Way, workers: int, kept: bool) -> None:
    expected = epochs_of(ours.make, num_workers=0, shuffle=True)
    seen = epochs_of(ours.make, num_workers=workers, shuffle=True, persistent_workers=kept)
    assert_identical(seen, expected)
    assert not torch.equal(seen[0][0][1], seen[1][0][1]), "two epochs drew the same numbers"
    assert len({float(each) for batch in seen[0] for each in batch[1]}) == LENGTH, "two samples drew the same number"


class AtOnce(Sampler[list[int]]):
    """A batch sampler that draws all of its order when it is asked to begin, and counts how often that was."""

    def __init__(self) -> None:
        self.begun = 0

    def __iter__(self) -> Iterator[list[int]]:
        self.begun += 1
        order = random.Random(self.begun).sample(range(LENGTH), LENGTH)
        order = [order[index] for index in torch.randperm(LENGTH)]
        return iter([order[at : at + 3] for at in range(0, LENGTH, 3)])


@pytest.mark.parametrize(("workers", "kept"), [(2, False), (2, True)])
def test_a_batch_sampler_that_draws_at_once_gives_the_same_order(ours: Way, workers: int, kept: bool) -> None:
    options: dict[str, Any] = {"batch_size": 1, "seeding": "ticket"}
    seed_all()
    loaders = [
        ours.make(Drawing(), batch_sampler=AtOnce(), num_workers=workers, persistent_workers=kept, **options)
        for workers, kept in ((0, False), (workers, kept))
    ]
    expected, seen = [], []
    for loader, into in zip(loaders, (expected, seen), strict=True):
        seed_all()
        into += [list(loader) for _ in range(3)]
    assert_identical(seen, expected)


def test_the_order_is_torchs_and_the_programs_generators_move_as_with_torch() -> None:
    def orders_of(loader: Any) -> Any:
        return [torch.cat([batch[0] for batch in loader]) for _ in range(2)], generator_states()

    seed_all()
    expected = orders_of(torch.utils.data.DataLoader(Drawing(), 2, shuffle=True, num_workers=2))
    for workers in (0, 2):
        seed_all()
        assert_identical(orders_of(DataLoader(Drawing(), 2, True, num_workers=workers, seeding="ticket")), expected)


class Whimsical(Sampler[int]):
    """Draws every index when it is asked for it, from the generators of the program."""

    def __len__(self) -> int:
        return LENGTH

    def __iter__(self) -> Iterator[int]:
        for _ in range(LENGTH):
            yield int(torch.randint(LENGTH, ())) if random.random() < 0.5 else np.random.randint(LENGTH)


def test_a_sampler_that_draws_as_it_goes_gives_the_same_order_beside_a_program_that_draws_as_well() -> None:
    def order_with(workers: int) -> list[int]:
        seed_all()
        order = []
        loader = DataLoader(Drawing(), 2, sampler=Whimsical(), num_workers=workers, seeding="ticket")
        for batch in loader:
            order += batch[0].int().tolist()
            torch.rand(3), random.random(), np.random.rand()
        return order

    assert order_with(0) == order_with(1) == order_with(3)


class Deadly(Drawing):
    """Some samples end the first worker that comes to them."""

    def __init__(self, folder: Path, *deadly: int) -> None:
        super().__init__()
        self.folder = folder
        self.deadly = deadly

    def __getitem__(self, index: int) -> tuple[float, ...]:
        mark = self.folder / str(index)
        if index in self.deadly and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("in_order", [True, False])
def test_workers_that_die_change_nothing(tmp_path: Path, in_order: bool) -> None:
    make = our_way("grown").make
    expected = epochs_of(make, num_workers=0)
    dataset = Deadly(tmp_path, 0, 7, 8, 20)
    seen = epochs_of(make, num_workers=3, dataset=dataset, in_order=in_order)
    if not in_order:
        seen = [sorted(batches, key=lambda batch: float(batch[0][0])) for batches in seen]
    assert_identical(seen, expected)
    assert len(list(tmp_path.iterdir())) == 4


class PerClass(Dataset[Any]):
    """Every class of samples has a generator of its own, made when the first of them is fetched."""

    def __init__(self) -> None:
        self.held: dict[int, np.random.Generator] = {}

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> tuple[float, ...]:
        kind = index // 7
        if kind not in self.held:
            self.held[kind] = np.random.default_rng(kind)
        return index, self.held[kind].random()


def test_generators_that_are_made_late_in_an_epoch_follow_from_the_seed_as_well(ours: Way) -> None:
    for dataset in (PerClass, lambda: ConcatDataset([Drawing(), Drawing(), PerClass()])):
        expected = epochs_of(ours.make, num_workers=0, dataset=dataset())
        for workers in (1, 3):
            assert_identical(epochs_of(ours.make, num_workers=workers, dataset=dataset()), expected)


class Reseeding(Dataset[Any]):
    """Every sample has a generator of its own, with a seed of its own, in the same place."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(0)
        self.calls = 0

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[float, ...]:
        self.calls += 1
        self.own = np.random.default_rng(index)
        return index, self.own.random(), self.calls


def test_a_generator_that_is_made_anew_for_every_sample_does_not_double_the_work(ours: Way) -> None:
    [batches] = epochs_of(ours.make, num_workers=1, dataset=Reseeding(), epochs=1)
    expected = [np.random.default_rng(index).random() for index in range(20)]
    assert torch.cat([batch[1] for batch in batches]).tolist() == expected
    assert int(batches[-1][2][-1]) == 20 + 2, "more than the first batch was made twice"


class Faulty(Drawing):
    """A sample fails at first, after it has drawn."""

    def __init__(self, folder: Path, *, always: bool = False) -> None:
        super().__init__()
        self.mark = folder / "failed"
        self.always = always

    def __getitem__(self, index: int) -> tuple[float, ...]:
        sample = super().__getitem__(index)
        if index == 9 and (self.always or not self.mark.exists()):
            self.mark.touch()
            raise ValueError("not yet")
        return sample


def test_a_sample_that_is_fetched_again_draws_what_it_drew(tmp_path: Path) -> None:
    make = our_way("grown").make
    expected = epochs_of(make, num_workers=0)
    retry = Retry(1, backoff_s=0)
    assert_identical(epochs_of(make, num_workers=2, dataset=Faulty(tmp_path), on_error=retry), expected)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_in_the_batch_that_makes_a_generator_is_told(tmp_path: Path, workers: int) -> None:
    retry = Retry(1, backoff_s=0)
    loader = DataLoader(Faulty(tmp_path), LENGTH, num_workers=workers, seeding="ticket", on_error=retry)
    list(loader)
    assert loader.ledger.counts == {"sample-retried": 1}


def test_what_takes_the_place_of_a_sample_does_not_depend_on_who_drew_it(tmp_path: Path) -> None:
    make = our_way("grown").make
    one, three = (
        epochs_of(make, num_workers=workers, dataset=Faulty(tmp_path, always=True), on_error="replace")
        for workers in (1, 3)
    )
    assert_identical(three, one)


class Gated(Dataset[int]):
    """One sample waits until so many others have been begun."""

    def __init__(self, folder: Path, *, slow: int, after: int, limit_s: float = 20) -> None:
        self.folder = folder
        self.slow = slow
        self.after = after
        self.limit_s = limit_s

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> int:
        if index == self.slow:
            deadline = time.monotonic() + self.limit_s
            while len(list(self.folder.iterdir())) < self.after and time.monotonic() < deadline:
                time.sleep(0.005)
            if time.monotonic() >= deadline:
                raise TimeoutError(f"only {len(list(self.folder.iterdir()))} others were begun meanwhile")
        else:
            (self.folder / str(index)).touch()
        return index


def test_all_others_are_made_while_one_is_slow_and_the_order_is_kept(tmp_path: Path) -> None:
    """With torch, it would be 3 others: the window holds 4. Ticket 6 is behind 4 in the queue of its worker."""
    loader = our_way("grown").make(Gated(tmp_path, slow=4, after=59), batch_size=1, seeding="ticket")
    assert [int(batch) for batch in loader] == list(range(60))


def test_as_much_is_made_ahead_as_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "FURTHEST", 2)
    dataset = Gated(tmp_path, slow=4, after=60, limit_s=2)
    loader = our_way("grown").make(dataset, batch_size=1, seeding="ticket")
    iterator = iter(loader)
    seen = [int(next(iterator)) for _ in range(4)]
    with pytest.raises(TimeoutError, match=r"only 15 others"):  # 4 were delivered; 3 are in the window, 8 ahead of it
        next(iterator)
    assert [*seen, *(int(batch) for batch in iterator)] == [*range(4), *range(5, 60)]


def test_out_of_order_fast_batches_come_first(tmp_path: Path) -> None:
    loader = our_way("grown").make(Gated(tmp_path, slow=0, after=59), batch_size=1, seeding="ticket", in_order=False)
    batches = [int(batch) for batch in loader]
    assert 0 in batches[-2:]  # the slow one goes on as soon as the last of the others is begun: either may come first
    assert sorted(batches) == list(range(60))


def test_what_was_broken_off_does_not_hold_up_the_next_epoch(tmp_path: Path) -> None:
    dataset = Gated(tmp_path, slow=-1, after=0)
    loader = our_way("grown").make(dataset, batch_size=1, seeding="ticket", persistent_workers=True, prefetch_factor=8)
    for _ in range(3):
        next(iter(loader))
    assert [int(batch) for batch in loader] == list(range(60))


def test_an_epoch_that_was_broken_off_while_others_were_ahead_is_followed_by_a_whole_one(tmp_path: Path) -> None:
    dataset = Gated(tmp_path, slow=4, after=40)
    loader = our_way("grown").make(dataset, batch_size=1, seeding="ticket", persistent_workers=True)
    for batch in loader:
        if batch == 4:  # those that had to be begun before it are made, and not delivered
            break
    assert [int(batch) for batch in loader] == list(range(60))


@pytest.mark.parametrize("sampler", [None, Whimsical()])
def test_an_epoch_of_which_no_batch_was_taken_counts_for_the_next_whatever_the_number_of_workers(sampler: Any) -> None:
    def epoch_after_none(workers: int) -> Any:
        seed_all()
        loader = DataLoader(
            Drawing(), 2, shuffle=None if sampler else True, sampler=sampler, num_workers=workers, seeding="ticket"
        )
        iter(loader)
        return list(loader), generator_states()

    assert_identical(epoch_after_none(2), epoch_after_none(0))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_an_iterable_dataset_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot work with an iterable dataset"):
        DataLoader(Stream(), seeding="ticket")


def test_a_seeding_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="seeding='worker' cannot work"):
        DataLoader(Drawing(), seeding="worker")  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 2])
def test_where_everything_is_switched_off_it_is_said_that_the_seeding_is_not_in_force(
    workers: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTIFREEZE", "0")
    monkeypatch.setattr(say, "_said", set())
    iter(DataLoader(Drawing(), num_workers=workers, seeding="ticket"))
    assert 'seeding="ticket" is not in force' in capfd.readouterr().err


# --- beside other threads


class Slow(Drawing):
    """Lets other threads run in the middle of each sample; has nothing that is made at first use, and seeded then."""

    def __init__(self) -> None:
        super().__init__()
        self.lazy = np.random.default_rng(7)

    def __getitem__(self, index: int) -> tuple[float, ...]:
        first = super().__getitem__(index)
        time.sleep(0.001)
        return *first, *super().__getitem__(index)


def test_what_another_thread_draws_is_not_undone() -> None:
    drawn: list[tuple[float, float, float]] = []
    is_over = threading.Event()

    def draw() -> None:
        while not is_over.is_set():
            drawn.append((torch.rand((), dtype=torch.float64).item(), random.random(), np.random.rand()))
            time.sleep(0)

    seed_all()
    thread = threading.Thread(target=draw)
    thread.start()
    try:
        list(DataLoader(Slow(), seeding="ticket", batch_size=1))
    finally:
        is_over.set()
        thread.join()
    for numbers in zip(*drawn, strict=True):
        assert len(numbers) - len(set(numbers)) == 0, "the same numbers came twice"


def test_loaders_in_two_threads_give_the_batches_that_each_gives_alone() -> None:
    def load(seed: int) -> list[Any]:
        generator = torch.Generator().manual_seed(seed)
        return list(DataLoader(Slow(), seeding="ticket", batch_size=2, generator=generator))

    expected = [load(1), load(2)]
    with ThreadPoolExecutor(2) as pool:
        assert_identical(list(pool.map(load, [1, 2])), expected)


def test_threads_that_wait_for_each_other_do_so_once_and_for_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(seclusion, "PATIENCE_S", 0.01)
    monkeypatch.setattr(seclusion, "_is_waited_for", True)

    class Nested(Drawing):
        """Waits for a loader in another thread."""

        def __getitem__(self, index: int) -> Any:
            with ThreadPoolExecutor(1) as pool:
                return len(pool.submit(lambda: list(DataLoader(Drawing(), seeding="ticket"))).result())

    assert next(iter(DataLoader(Nested(), seeding="ticket"))).item() == LENGTH
    assert capsys.readouterr().err.count("side by side") == 1
