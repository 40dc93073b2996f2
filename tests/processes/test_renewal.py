"""Workers that copy the stem's memory by reading it are renewed; nobody notices, but for the memory that is not used."""

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from antifreeze.engine.supervise import growth
from antifreeze.engine.worker import bench, renewal
from antifreeze.observe.ledger import Kind
from drop_in.harness import TORCH, Way, our_way, seed_all, tidy_up, torch_may_fork
from user_scripts import Ended

pytestmark = [pytest.mark.usefixtures("not_for_torch")]

TEXTS, BATCH = 300_000, 4_000
OPTIONS: dict[str, Any] = {"batch_size": BATCH, "num_workers": 2}


class Captions(Dataset[Any]):
    """Reads a text, of which there are 80 MB, and now and then draws from every kind of generator."""

    def __init__(self) -> None:
        self.texts = [f"caption {number} " + "x" * 200 for number in range(TEXTS)]
        self.held = np.random.default_rng(7)
        self.drawn = random.Random(5)

    def __len__(self) -> int:
        return TEXTS

    def __getitem__(self, index: int) -> float:
        size = len(self.texts[index])
        if index % 8:  # to draw takes longer than to read
            return float(size)
        drawn = random.random() + np.random.random() + self.held.random() + self.drawn.gauss() + torch.rand(()).item()
        return size + drawn


class Counting(Captions):
    """Counts its samples, for reasons of its own."""

    count = 0

    def __getitem__(self, index: int) -> float:
        self.count += 1
        return len(self.texts[index]) + self.count


class Stream(IterableDataset[Any]):
    def __init__(self) -> None:
        self.texts = Captions().texts

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        assert worker is not None
        for index in range(worker.id, TEXTS, worker.num_workers):
            yield len(self.texts[index])


def private_bytes() -> int:
    """Of the largest process that belongs to this one; each must be there for as long as it is looked at."""
    return max(process.memory_full_info().uss for process in psutil.Process().children(recursive=True))


def read(loader: Any, *, epochs: int = 1) -> tuple[list[torch.Tensor], int]:
    """All batches, and by how much the largest of the processes has grown meanwhile."""
    batches, sizes = [], []
    for _ in range(epochs):
        for batch in loader:
            batches.append(batch.clone())
            sizes.append(private_bytes())
    return batches, max(sizes) - sizes[0]


@pytest.mark.long
def test_reading_a_big_list_takes_no_memory_and_batches_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    # The workers inherit this: how much they may copy does not depend on how large this process is, or how fast.
    monkeypatch.setattr(growth, "SHARE", 0.0)
    monkeypatch.setattr(growth, "LIVES", 0)
    monkeypatch.setattr(growth, "PAUSES", 0)
    dataset = Captions()
    seed_all()
    loader = our_way("grown").make(dataset, **OPTIONS, persistent_workers=True)
    ours, grown_bytes = read(loader, epochs=2)
    assert loader.ledger.counts[Kind.WORKER_RENEWED] >= 2
    assert loader.ledger.counts.keys() <= {Kind.WORKER_RENEWED, Kind.DOUBT}
    assert grown_bytes < 28 << 20  # without renewal: half of the texts
    seed_all()
    with torch_may_fork():
        calm = TORCH.make(dataset, **OPTIONS, persistent_workers=True, multiprocessing_context="fork")
        expected = [batch.clone() for _ in range(2) for batch in calm]
    del calm
    tidy_up()
    assert [number for number, pair in enumerate(zip(ours, expected, strict=True)) if not pair[0].equal(pair[1])] == []


READING = """
import sys
from antifreeze import DataLoader
from antifreeze.engine.supervise import growth

def look_often(worker):
    growth.SHARE = growth.LIVES = growth.PAUSES = 0  # when workers are renewed does not depend on time

class Captions:
    '''Reads texts, of which there are 80 MB.'''

    def __init__(self):
        self.texts = [f"caption {number} " + "x" * 200 for number in range(300_000)]

    def __len__(self):
        return 300_000

    def __getitem__(self, index):
        return len(self.texts[index])

if __name__ == "__main__":
    options = dict(batch_size=4_000, num_workers=2, worker_init_fn=look_often, multiprocessing_context=sys.argv[1])
    loader = DataLoader(Captions(), **options)
    assert sum(len(batch) for batch in loader) == 300_000
    print(*sorted(loader.ledger.counts))
"""


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("context", "kinds"), [("fork", "worker-renewed"), ("spawn", "")])
def test_workers_are_renewed_where_they_share_the_dataset(
    run_script: Callable[..., Ended], context: str, kinds: str
) -> None:
    """Forked ones do; a spawned worker has a dataset of its own, and would have to unpickle it again."""
    assert run_script(READING, context).check().stdout.strip() == kinds


@pytest.mark.long
def test_renewals_among_kills_cost_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "FLOOR_BYTES", 256 << 10)  # for the workers, who inherit it
    monkeypatch.setattr(growth, "SHARE", 0.0)
    monkeypatch.setattr(growth, "LIVES", 0)
    monkeypatch.setattr(growth, "PAUSES", 0)
    monkeypatch.setattr(renewal, "VISITS", 0)
    monkeypatch.setattr(bench, "SNAPSHOT_S", 0.0)  # a worker that is killed takes over where it was, not 50 ms before
    dataset, options = Captions(), {**OPTIONS, "batch_size": 200, "sampler": range(TEXTS // 4)}
    seed_all()
    loader = our_way("grown").make(dataset, **options)
    iterator, chance, ours, kills = iter(loader), random.Random(11), [], 0
    for batch in iterator:
        ours.append(batch.clone())
        if chance.random() < 0.1:
            with contextlib.suppress(ProcessLookupError):  # dead already, and not noticed yet: that was no kill
                os.kill(chance.choice(iterator._workers).pid, signal.SIGKILL)
                kills += 1
    seed_all()
    with torch_may_fork():
        expected = [batch.clone() for batch in TORCH.make(dataset, **options, multiprocessing_context="fork")]
    tidy_up()
    assert [number for number, pair in enumerate(zip(ours, expected, strict=True)) if not pair[0].equal(pair[1])] == []
    assert kills > 15
    assert loader.ledger.counts[Kind.WORKER_RENEWED] > 10


@pytest.mark.long
@pytest.mark.parametrize("dataset", [Counting, Stream])
def test_a_worker_that_would_not_go_on_where_it_stopped_stays(way: Way, dataset: type[Any]) -> None:
    loader = way.make(dataset(), **OPTIONS)
    batches, _ = read(loader)
    assert sum(len(batch) for batch in batches) == TEXTS
    assert Kind.WORKER_RENEWED not in loader.ledger.counts


# In a process of its own: a fork of this one, which has freed much, keeps new things in pages that it has inherited.
KEEPING = """
import sys
from antifreeze import DataLoader

kept = {}

class Keeping:
    '''Keeps 75 MB that it has made itself, where nobody looks.'''

    def __len__(self):
        return 300_000

    def __getitem__(self, index):
        kept[index] = bytes(500)
        return len(kept[index])

if __name__ == "__main__":
    loader = DataLoader(Keeping(), batch_size=4_000, num_workers=2, multiprocessing_context=sys.argv[1])
    assert sum(len(batch) for batch in loader) == 300_000
    print(dict(loader.ledger.counts))
"""


@pytest.mark.long(but=1)
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_worker_that_has_grown_by_what_it_made_itself_stays(run_script: Callable[..., Ended], context: str) -> None:
    ended = run_script(KEEPING, context)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "{}"


LEAKING = """
import functools
import torch
from antifreeze import DataLoader
from antifreeze.engine.supervise import growth
from antifreeze.engine.worker import bench

@functools.lru_cache(None)
def leaked(index, epoch):
    return bytearray(200_000)

class Leaking:
    '''Draws, and leaves 200 kB behind for every sample.'''

    def __len__(self):
        return 400

    def __getitem__(self, index):
        leaked(index, torch.rand(()).item())
        return index, torch.rand(())

def read(loader):
    torch.manual_seed(3)
    return [batch for _ in range(2) for batch in loader]

if __name__ == "__main__":
    growth.LEAK_BYTES, growth.SHORT_SHARE = 10 << 20, 2.0  # for the workers, which inherit it: memory is always short
    growth.LIVES = growth.PAUSES = bench.SNAPSHOT_S = 0  # look at every ticket
    options = dict(batch_size=4, num_workers=2, persistent_workers=True, multiprocessing_context="fork")
    expected = read(torch.utils.data.DataLoader(Leaking(), **options))
    loader = DataLoader(Leaking(), **options)
    batches = read(loader)
    assert all(mine[0].equal(his[0]) and mine[1].equal(his[1]) for mine, his in zip(batches, expected, strict=True))
    (kind,) = loader.ledger.counts
    print(kind, loader.ledger.counts[kind] >= 2, "its own memory had grown by" in next(iter(loader.ledger)).what)
"""


@pytest.mark.long
def test_a_worker_that_leaks_is_renewed_when_memory_is_short(run_script: Callable[..., Ended]) -> None:
    ended = run_script(LEAKING)
    assert ended.check().stdout == "worker-renewed True True\n"
