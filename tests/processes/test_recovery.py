"""Workers, stems and the base die; the user's loop sees every batch once, in order, bit for bit what a calm torch gives."""

import contextlib
import contextvars
import functools
import os
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from antifreeze.engine.backends import clean
from antifreeze.errors import WorkerLost
from drop_in.harness import TORCH, Way, our_class, seed_all, tidy_up, torch_may_fork
from processes import datasets
from processes.datasets import Numbers

pytestmark = pytest.mark.usefixtures("not_for_torch")


class Slotted:
    """Holds a generator in a slot."""

    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = random.Random(8)


OF_THE_MODULE = np.random.default_rng(9)


OF_THE_THREAD = threading.local()
OF_THE_CONTEXT: contextvars.ContextVar[random.Random] = contextvars.ContextVar("generator")


@functools.cache
def of_the_cache() -> random.Random:
    return random.Random(14)


@functools.lru_cache
def of_the_other_cache(name: str) -> random.Random:
    return random.Random(name)


def apart() -> float:
    """Draws from generators that are made at first use, and kept where attributes and globals do not lead to."""
    if not hasattr(OF_THE_THREAD, "rng"):
        OF_THE_THREAD.rng = random.Random(15)
    if OF_THE_CONTEXT.get(None) is None:
        OF_THE_CONTEXT.set(random.Random(16))
    drawn = float(OF_THE_THREAD.rng.random() + OF_THE_CONTEXT.get().random() + of_the_cache().random())
    return drawn + of_the_other_cache("ab"[drawn > 1.5]).random()


def noise(own: random.Random = random.Random(10)) -> float:  # noqa: B008
    """Draws from a generator that is a default, and from one that is a global."""
    return own.random() + OF_THE_MODULE.random()


class Augmented(Dataset[Any]):
    """Draws from every kind of generator, for every sample; one of them is made at first use."""

    of_the_class = np.random.RandomState(6)

    def __init__(self, length: int) -> None:
        self.hidden: Any = [Slotted(), {random.Random(11)}, deque([random.Random(12)])]
        self.bits = np.random.PCG64(13)
        self.length = length
        self.own = np.random.default_rng(7)
        self.torchs = torch.Generator().manual_seed(3)
        self.lazy: random.Random | None = None
        self.opened: Slotted | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if self.lazy is None:  # and what is opened beside it is not asked for by itself, as most datasets have it
            self.lazy = random.Random(5)
            self.opened = Slotted()
        assert self.opened is not None
        return {
            "index": index,
            "torch": torch.rand(4),
            "random": random.random(),
            "numpy": np.random.rand(),
            "own": self.own.random(),
            "torchs": torch.rand(2, generator=self.torchs),
            "lazy": self.lazy.random(),
            "opened": self.opened.rng.random(),
            "class": self.of_the_class.rand(),
            "module": noise(),
            "apart": apart(),
            "hidden": [self.hidden[0].rng.random(), next(iter(self.hidden[1])).random(), self.hidden[2][0].random()],
            "bits": self.bits.random_raw() >> 12,
            "large": torch.full((2000,), float(index)),
        }


def jitter(samples: list[Any]) -> Any:
    """A collate function that draws, too."""
    batch = torch.utils.data.default_collate(samples)
    return {**batch, "jitter": torch.rand(2) + random.random()}


def batches_of(loader: Any, *, epochs: int = 1, between: Callable[[Any], None] = lambda _: None) -> list[Any]:
    seen = []
    for _ in range(epochs):
        iterator = iter(loader)
        for batch in iterator:
            hidden = torch.stack(batch.pop("hidden"))
            seen.append({name: part.clone() for name, part in batch.items()} | {"hidden": hidden})
            between(iterator)
    return seen


def assert_same(ours: list[Any], expected: list[Any]) -> None:
    assert len(ours) == len(expected)
    for number, (one, other) in enumerate(zip(ours, expected, strict=True)):
        assert one.keys() == other.keys()
        assert [name for name in one if not one[name].equal(other[name])] == [], f"batch {number}"


OPTIONS: dict[str, Any] = {"batch_size": 4, "num_workers": 3, "shuffle": True, "collate_fn": jitter}


def calm(context: str | None, **options: Any) -> list[Any]:
    seed_all()
    try:
        with torch_may_fork():
            loader = TORCH.make(Augmented(400), **{**OPTIONS, "multiprocessing_context": context, **options})
            return batches_of(loader, epochs=2)
    finally:
        tidy_up()


class Killer:
    """Kills a random worker now and then, and counts."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._random = random.Random(11)  # not the program's own, which the loader's results depend on
        self.kills = 0

    def __call__(self, iterator: Any) -> None:
        if self._random.random() < self._share:
            victim = self._random.choice(iterator._workers)
            number = self._random.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
            with contextlib.suppress(ProcessLookupError):  # dead already, and not noticed yet: that was no kill
                os.kill(victim.pid, number)
                self.kills += 1


@pytest.mark.long
@pytest.mark.parametrize("keep", [False, True], ids=["new workers every epoch", "workers kept"])
def test_under_a_hundred_kills_batches_are_bit_for_bit_those_of_a_calm_torch(way: Way, keep: bool) -> None:
    expected = calm("fork", persistent_workers=keep)
    killer = Killer(0.6)
    seed_all()
    ours = batches_of(way.make(Augmented(400), **OPTIONS, persistent_workers=keep), epochs=2, between=killer)
    assert_same(ours, expected)
    assert killer.kills > 100


class Hundreds(Dataset[Any]):
    """Has a generator of its own for each of its samples, and another one behind them."""

    def __init__(self) -> None:
        self.records = [{"path": f"{number}", "rng": random.Random(number)} for number in range(300)]
        self.crops = [{"scans": [np.zeros(1)] * 9 + [np.zeros(1) for _ in range(20)]} for _ in range(250)]
        self.transforms = [[Slotted()]]

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> Any:
        drawn = [self.records[each]["rng"].random() for each in (index, index // 3)]  # type: ignore[attr-defined]
        return [*drawn, self.transforms[0][0].rng.random()]


def drawn_by(loader: Any, *, kill_after: Collection[int] = ()) -> list[Any]:
    seen = []
    iterator = iter(loader)
    for number, batch in enumerate(iterator):
        seen.append(torch.stack([torch.as_tensor(part) for part in batch]).tolist())
        if number in kill_after:
            os.kill(iterator._workers[number % 2].pid, signal.SIGKILL)
    return seen


def test_a_worker_is_replaced_where_generators_are_too_many_to_look_at() -> None:
    way = Way("grown", our_class(), "fork")
    calm = drawn_by(way.make(Hundreds(), batch_size=5))
    assert drawn_by(way.make(Hundreds(), batch_size=5), kill_after=(20, 31)) == calm


class HundredsInAStream(IterableDataset[Any]):
    """The same, read one after the other."""

    def __init__(self) -> None:
        self.rngs = [random.Random(number) for number in range(300)]

    def __iter__(self) -> Iterator[Any]:
        for number in range(60):
            yield [number, self.rngs[number // 7].random()]


@pytest.mark.parametrize("killed_in", [1, 2], ids=["first pass", "second pass"])
def test_a_reader_is_replaced_where_generators_are_too_many_to_look_at(killed_in: int) -> None:
    way = Way("grown", our_class(), "fork")
    calm = way.make(HundredsInAStream(), batch_size=2, persistent_workers=True)
    expected = [drawn_by(calm) for _ in range(2)]
    loader = way.make(HundredsInAStream(), batch_size=2, persistent_workers=True)
    kills = [(9, 20) if number == killed_in else () for number in (1, 2)]
    assert [drawn_by(loader, kill_after=each) for each in kills] == expected


class NoisyImages(Dataset[Any]):
    """Draws from the generator of OpenCV, which shows its state to nobody."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> Any:
        import cv2

        noise = np.zeros((2, 2), np.float32)
        cv2.randn(noise, 0, 1)
        return [index, random.random(), *noise.flat]


def test_a_worker_that_draws_from_opencv_is_replaced() -> None:
    pytest.importorskip("cv2")
    way = Way("grown", our_class(), "fork")
    seed_all()
    calm = drawn_by(way.make(NoisyImages(), batch_size=5))
    seed_all()
    assert drawn_by(way.make(NoisyImages(), batch_size=5), kill_after=(20, 31)) == calm


class Once(Numbers):
    """Ends its worker at one sample, but only the first time."""

    def __init__(self, length: int, *, note: Path, death: Callable[[], None]) -> None:
        super().__init__(length)
        self.note = note
        self.death = death

    def __getitem__(self, index: int) -> int:
        if index == 7 and not self.note.exists():
            self.note.touch()
            self.death()
        return index


DEATHS = [
    datasets.exit_0,
    datasets.exit_3,
    datasets.sys_exit_4,
    datasets.be_killed,
    datasets.segfault,
    datasets.abort,
]


@pytest.mark.long(but=3)
@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.__name__)
def test_a_death_at_a_sample_that_does_not_recur_costs_nothing(
    way: Way, tmp_path: Path, death: Callable[[], None]
) -> None:
    loader = way.make(Once(16, note=tmp_path / "note", death=death), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[k, k + 1] for k in range(0, 16, 2)]
    assert (tmp_path / "note").exists()


def test_all_workers_at_once(way: Way) -> None:
    iterator = iter(way.make(Numbers(400), batch_size=2, num_workers=3))
    seen = [next(iterator).tolist() for _ in range(5)]
    for worker in list(iterator._workers):
        os.kill(worker.pid, signal.SIGKILL)
    seen += [batch.tolist() for batch in iterator]
    assert seen == [[k, k + 1] for k in range(0, 400, 2)]


def test_workers_that_are_killed_while_they_start(way: Way) -> None:
    iterator = iter(way.make(Numbers(40), batch_size=2))
    for worker in list(iterator._workers):
        os.kill(worker.pid, signal.SIGKILL)  # asking for the pid waits for its birth, and for no more
    assert [batch.tolist() for batch in iterator] == [[k, k + 1] for k in range(0, 40, 2)]


@pytest.mark.parametrize("with_workers", [False, True], ids=["alone", "with its workers"])
def test_the_stem_is_killed(way: Way, with_workers: bool) -> None:
    iterator = iter(way.make(Numbers(400), batch_size=2))
    seen = [next(iterator).tolist()]
    victims = [iterator._epoch._pool.stem.pid]
    if with_workers:
        victims += [worker.pid for worker in iterator._workers]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    seen += [next(iterator).tolist() for _ in range(9)]
    os.kill(iterator._workers[0].pid, signal.SIGKILL)  # whose stem, if it was left alone, is gone
    seen += [batch.tolist() for batch in iterator]
    assert seen == [[k, k + 1] for k in range(0, 400, 2)]


def test_the_clean_base_is_killed_with_stem_and_workers() -> None:
    loader = our_clean_loader()
    iterator = iter(loader)
    seen = [next(iterator).tolist()]
    base = clean.base_pid()
    assert base is not None
    for pid in (base, iterator._epoch._pool.stem.pid, *(worker.pid for worker in iterator._workers)):
        os.kill(pid, signal.SIGKILL)
    seen += [batch.tolist() for batch in iterator]
    assert seen == [[k, k + 1] for k in range(0, 60, 2)]
    assert clean.base_pid() != base


def our_clean_loader() -> Any:
    from drop_in.harness import our_way

    return our_way("clean").make(Numbers(60), batch_size=2)


class Poison(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 5:
            os.kill(os.getpid(), signal.SIGSEGV)
        return index


def test_a_sample_that_kills_every_time_is_named_after_two_attempts(way: Way) -> None:
    iterator = iter(way.make(Poison(40), batch_size=4))
    with pytest.raises(WorkerLost) as caught:
        list(iterator)
    error = caught.value
    assert error.batch == 1 and error.exitcode == -signal.SIGSEGV
    assert "batch 1, sample 5" in str(error)
    assert "2 workers have ended there" in str(error)


class OneByOne(Dataset[Any]):
    """One thing for each key, which is no list of samples, whatever it looks like; one of them ends its worker."""

    def __init__(self, poison: Any) -> None:
        self.poison = poison

    def __getitem__(self, key: Any) -> Any:
        if key == self.poison:
            os._exit(9)
        return key

    def __len__(self) -> int:
        return 1000


@pytest.mark.parametrize("kind", [tuple, list])
def test_without_batches_a_key_is_quarantined_as_a_whole(way: Way, kind: Any) -> None:
    keys = [kind((row, column)) for row in range(4) for column in range(4)]
    options: dict[str, Any] = {"sampler": keys, "collate_fn": None, "on_error": "skip", "max_lost": 1}
    loader = way.make(OneByOne(kind((1, 1))), batch_size=None, **options)
    expected = [torch.tensor(key).tolist() for key in keys if key != kind((1, 1))]
    for _ in range(2):
        assert [list(map(int, key)) for key in loader] == expected


class SlowPoison(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 5:
            time.sleep(0.2)  # so that other workers have it, too
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.mark.parametrize("seeding", ["torch", "ticket"])
def test_a_sample_that_several_workers_have_at_once_is_left_out_everywhere(way: Way, seeding: str) -> None:
    drawn = [0, 5, 5, 1, 5, 2, 5, 5, 3, 5]  # as samplers give that draw rare samples often
    options: dict[str, Any] = {"sampler": drawn, "on_error": "skip", "max_lost": 1.0, "seeding": seeding}
    loader = way.make(SlowPoison(6), num_workers=3, **options)
    assert [batch.tolist() for batch in loader] == [[0], [1], [2], [3]]
    assert loader.ledger.counts["sample-quarantined"] == 1


class ManyPoisons(Numbers):
    def __getitem__(self, index: int) -> int:
        os._exit(9)


def test_a_dataset_that_ends_every_worker_ends_in_an_error(way: Way) -> None:
    with pytest.raises(WorkerLost, match="exit code 9"):
        list(way.make(ManyPoisons(4000), batch_size=4, num_workers=3))


@pytest.fixture(autouse=True)
def no_leftovers_of_torch() -> Iterator[None]:
    yield
    tidy_up()
