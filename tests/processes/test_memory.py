"""Shared memory and descriptors stay constant, and a batch keeps its content for as long as somebody holds it."""

import gc
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from drop_in.harness import Way, our_way
from processes import datasets
from processes.datasets import Numbers, Pictures
from user_scripts import Ended

pytestmark = pytest.mark.usefixtures("not_for_torch")


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def shared_bytes() -> int:
    """Bytes of memory files mapped into this process."""
    spans = re.findall(r"^(\w+)-(\w+) .*/memfd:", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return sum(int(end, 16) - int(begin, 16) for begin, end in spans)


def is_intact(batch: Any) -> bool:
    pictures, labels = batch
    return all(bool((picture == label).all()) for picture, label in zip(pictures, labels.tolist(), strict=True))


def test_descriptors_stay_constant_over_two_thousand_batches(way: Way) -> None:
    counts = set()
    for number, _ in enumerate(way.make(Numbers(2100), batch_size=1)):
        if number >= 100:
            counts.add(count_descriptors())
    assert len(counts) == 1, counts


def test_descriptors_and_memory_stay_constant_over_large_batches(way: Way) -> None:
    counts, sizes = [], []
    for batch in way.make(Pictures(300), batch_size=1):
        assert is_intact(batch)
        counts.append(count_descriptors())
        sizes.append(shared_bytes())
    assert max(counts[100:]) <= max(counts[:100])
    assert max(sizes[100:]) <= max(sizes[:100])


def test_kept_batches_keep_their_content_and_cost_no_descriptors(way: Way) -> None:
    kept, counts = [], []
    for batch in way.make(Pictures(300), batch_size=1):
        kept.append(batch)
        counts.append(count_descriptors())
    assert max(counts[100:]) <= max(counts[:100])  # a few dozen are lent, and have one each; the rest are copies
    assert all(is_intact(batch) for batch in kept)
    assert [int(labels) for _, labels in kept] == list(range(300))


def test_small_kept_tensors_do_not_hold_large_memory(way: Way) -> None:
    labels, sizes = [], []
    for _, label in way.make(Pictures(200), batch_size=1):
        labels.append(label)
        sizes.append(shared_bytes())
    assert max(sizes[40:]) <= max(sizes[:40])
    assert torch.cat(labels).tolist() == list(range(200))


def test_batches_outlive_iterator_loader_and_workers(way: Way) -> None:
    loader = way.make(Pictures(12), batch_size=2, persistent_workers=True)
    kept = list(loader)
    views = [pictures[:, 1:, 5].numpy() for pictures, _ in kept[3:]]
    del loader
    gc.collect()
    assert all(is_intact(batch) for batch in kept)
    del kept
    gc.collect()
    assert [float(view[1, 0, 0]) for view in views] == [7.0, 9.0, 11.0]


def test_memory_is_given_back_when_the_last_batch_dies(way: Way) -> None:
    before = shared_bytes()
    kept = list(way.make(Pictures(30), batch_size=2))
    kept.clear()
    gc.collect()
    assert shared_bytes() <= before


def test_a_batch_may_die_in_another_thread(way: Way) -> None:
    seen = []
    batches = iter(way.make(Pictures(60), batch_size=2))
    for batch in batches:
        box = [batch]
        del batch
        thread = threading.Thread(target=lambda box=box: seen.append(is_intact(box.pop())), daemon=True)
        thread.start()
        thread.join(10)
    assert seen == [True] * 30


def test_batches_that_die_in_any_order_never_share_memory(way: Way) -> None:
    kept: list[Any] = []
    for number, batch in enumerate(way.make(Pictures(120), batch_size=1)):
        kept.append(batch)
        if number % 3 == 2:
            del kept[(number * 7) % len(kept)]
        assert all(is_intact(one) for one in kept[-8:])
    assert all(is_intact(one) for one in kept)


def test_the_trainers_writes_into_a_batch_reach_no_other_batch(way: Way) -> None:
    for pictures, labels in way.make(Pictures(60), batch_size=2):
        assert is_intact((pictures, labels))
        pictures.fill_(-1)


def test_large_arrays_are_intact_and_writable(way: Way) -> None:
    kept = []
    for number, batch in enumerate(way.make(Numbers(80), collate_fn=datasets.arrays)):
        assert (batch["large"] == number).all()
        batch["large"] += 1000
        kept.append(batch["large"][3])
    assert [float(row[0]) for row in kept] == [number + 1000.0 for number in range(80)]


KEEP = """
import os, resource, sys
import torch
from antifreeze import DataLoader
from torch.utils.data import Dataset


class Index(Dataset):
    def __len__(self):
        return 500
    def __getitem__(self, index):
        return {"index": index, "picture": torch.full((3, 80, 80), float(index))}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    for method in ("fork", "spawn"):
        kept = list(DataLoader(Index(), num_workers=2, multiprocessing_context=method))
        assert [int(batch["index"]) for batch in kept] == list(range(500))
        assert all(bool((batch["picture"] == int(batch["index"])).all()) for batch in kept)
        del kept
    print("OK")
"""


@pytest.mark.long
def test_five_hundred_batches_are_kept_under_a_limit_of_64_descriptors(run_script: Callable[..., Ended]) -> None:
    assert run_script(KEEP).check().stdout == "OK\n"


LARGE = """
import os, sys
import torch
from antifreeze import DataLoader
from torch.utils.data import Dataset


class Volumes(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return index, torch.full((3, 512, 512), float(index))


def custom(samples):
    return torch.utils.data.default_collate(samples)


if __name__ == "__main__":
    free = os.statvfs("/dev/shm")
    assert free.f_blocks * free.f_frsize <= 8 << 20, "the small /dev/shm is not there"
    for method in ("fork", "spawn"):
        for collate in (None, custom):
            seen = []
            for indices, volumes in DataLoader(
                Volumes(), batch_size=4, num_workers=2, multiprocessing_context=method, collate_fn=collate
            ):
                assert bool((volumes[:, 2, 511, 511] == indices).all())
                seen += indices.tolist()
            assert seen == list(range(24))
    print("OK")
"""


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a mount namespace needs root")
def test_large_batches_pass_where_shared_memory_is_small(run_script: Callable[..., Ended]) -> None:
    mount = 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec "$@"'
    wrapper = ("unshare", "-m", "--", "sh", "-c", mount, "sh")
    assert run_script(LARGE, wrapper=wrapper).check().stdout == "OK\n"


def test_a_tensor_kept_from_each_batch_does_not_stop_the_next(way: Way) -> None:
    """Every large tensor is kept: workers must still find room, for ever."""
    kept = [pictures for pictures, _ in way.make(Pictures(200), batch_size=1, prefetch_factor=1)]
    assert [float(picture.mean()) for picture in kept] == [float(number) for number in range(200)]


@pytest.mark.long
def test_nothing_is_kept_of_a_loader_that_is_gone() -> None:
    before = sys.getallocatedblocks()
    for _ in range(3):
        list(our_way("grown").make(Numbers(8), batch_size=2))
    gc.collect()
    middle = sys.getallocatedblocks()
    for _ in range(10):
        list(our_way("grown").make(Numbers(8), batch_size=2))
    gc.collect()
    grown = sys.getallocatedblocks() - middle
    assert grown < 1000, f"{grown} objects more after 10 loaders ({middle - before} after the first 3)"
