"""What a batch is made of arrives as torch delivers it: types, dtypes, strides, bits.

The common cases, end to end. Every kind there is: `test_batch_kinds`; structures that change: `test_batch_structures`; any
structure at all: `test_batch_properties`; classes of the user: `test_batch_classes`; what cannot be sent:
`test_batch_refusals`; how long the memory of a batch lives: `test_batch_lifetime`; what becomes of a batch that is copied
or sent on: `test_batch_elsewhere`; what all this costs: `test_batch_resources`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from antifreeze import StatefulDataLoader
from drop_in import datasets
from drop_in.datasets import Numbers, Pictures, Records
from drop_in.harness import SELFTEST, Maker, Way, assert_same
from user_scripts import Ended

COLLATES = [
    *(datasets.as_is, datasets.as_structure, datasets.as_none, datasets.as_large_array, datasets.as_dtypes),
    *(datasets.as_layouts, datasets.as_aliases),
]


def test_everything_that_default_collate_knows_arrives_the_same(ours: Way) -> None:
    assert_same(ours, lambda make: list(make(Records(11), batch_size=3)))


def test_everything_that_default_convert_knows_arrives_the_same(ours: Way) -> None:
    assert_same(ours, lambda make: list(make(Records(5), batch_size=None)))


def test_samples_of_the_users_collate_function_arrive_as_they_are(ours: Way) -> None:
    assert_same(ours, lambda make: list(make(Records(5), batch_size=2, collate_fn=datasets.as_is)))


@pytest.mark.long(but=5)
@pytest.mark.parametrize("collate", COLLATES, ids=lambda collate: collate.__name__)
def test_what_a_collate_function_returns_arrives_the_same(ours: Way, collate: Callable[..., Any]) -> None:
    assert_same(ours, lambda make: list(make(Numbers(7), batch_size=2, collate_fn=collate)))


def test_large_batches_arrive_the_same(ours: Way) -> None:
    assert_same(ours, lambda make: list(make(Pictures(20), batch_size=4)))


def test_batches_of_very_different_size_arrive_the_same(ours: Way) -> None:
    sizes = [1, 70_000, 3, 0, 1_000_000, 2, 300_000, 5]
    dataset = [torch.full((size,), float(number)) for number, size in enumerate(sizes)]
    assert_same(ours, lambda make: list(make(dataset, batch_size=None)))


class Letters(Numbers):
    """Much that is not a tensor."""

    def __getitem__(self, index: int) -> Any:
        texts = [f"{index} {number:010}" * 10 for number in range(100_000 if index == 1 else 10)]  # of ten megabytes
        objects = [{"n": number, "s": (str(number), None)} for number in range(33_000 if index == 2 else 10)]
        return {"texts": texts, "objects": objects, "last": torch.tensor(index)}


@pytest.mark.long(but=1)
def test_megabytes_of_text_and_a_hundred_thousand_objects_arrive_the_same(ours: Way) -> None:
    assert_same(ours, lambda make: list(make(Letters(5), batch_size=None, collate_fn=datasets.as_is)))


JAGGED = f"""
import sys, warnings
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
warnings.simplefilter("ignore")
import torch.utils.data
from antifreeze import DataLoader
from drop_in.harness import TidyTorchLoader, tidy_up
from drop_in.kinds import LARGE, SMALL, as_it_is, jagged, jagged_with_lengths
from drop_in.portrait import assert_same_portrait, portrait


class Ragged(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return (jagged, jagged_with_lengths)[index % 2](LARGE if index > 4 else SMALL)


if __name__ == "__main__":
    Ragged()[0], Ragged()[1]  # what is imported here, forked workers need not import
    seen = []
    for kind in (TidyTorchLoader, DataLoader):
        loader = kind(Ragged(), batch_size=None, collate_fn=as_it_is, num_workers=1, multiprocessing_context="fork")
        seen.append([portrait(batch) for batch in loader])
    tidy_up()
    for torchs, ours in zip(*seen, strict=True):
        assert_same_portrait(torchs, ours)
    print("OK")
"""


@pytest.mark.long
def test_jagged_tensors_arrive_the_same(run_script: Callable[..., Ended], tmp_path: Path) -> None:
    """In a process of its own: torch imports its compiler for them, and that leaves a directory behind."""
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    assert run_script(JAGGED, env=environment).check().stdout == "OK\n"


def test_tensors_over_one_memory_stay_tensors_over_one_memory(ours: Way) -> None:
    def case(make: Maker) -> Any:
        batch = next(iter(make(Numbers(3), collate_fn=datasets.as_aliases)))
        batch["whole"].mul_(-1)
        batch["label"].append(3)
        return batch

    assert_same(ours, case)


def test_batches_may_be_changed_in_place(ours: Way) -> None:
    def case(make: Maker) -> Any:
        kept = []
        for pictures, labels in make(Pictures(12), batch_size=3):
            pictures.add_(1)
            labels.mul_(10)
            kept.append((pictures, labels))
        return kept

    assert_same(ours, case)


def test_arrays_may_be_changed_in_place(ours: Way) -> None:
    def case(make: Maker) -> Any:
        kept = []
        for batch in make(Numbers(6), collate_fn=datasets.as_large_array):
            batch["array"] += 1
            kept.append(batch["array"])
        return kept

    assert_same(ours, case)


def test_a_numpy_view_of_a_batch_outlives_the_batch(ours: Way) -> None:
    def case(make: Maker) -> Any:
        views = [pictures.numpy()[:, 0, 3] for pictures, _ in make(Pictures(30), batch_size=2)]
        return [(view.strides, np.array(view)) for view in views]

    assert_same(ours, case)


def test_kept_batches_are_not_overwritten(ours: Way) -> None:
    kept = list(ours.make(Pictures(60), batch_size=2))
    assert [pictures[:, 2, 63, 63].tolist() for pictures, _ in kept] == [[n, n + 1.0] for n in range(0, 60, 2)]


def test_collate_functions_need_no_name(ours: Way) -> None:
    scale = 3
    assert_same(ours_only_if_it_crosses(ours), lambda make: list(make(Numbers(5), collate_fn=lambda x: [scale, *x])))


def ours_only_if_it_crosses(way: Way) -> Way:
    """torch itself cannot spawn with a lambda; in the self-test of the suite there is nothing to compare then."""
    if way.context == "spawn" and SELFTEST:
        pytest.skip("torch cannot send a lambda to a spawned worker")
    return way


class OnTheCpu(Dataset[Any]):
    """Says where its tensors are to be, as one has to where the default device is another."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        image = torch.full((130, 140), float(index), device="cpu")
        return {"image": image, "turned": image.t(), "name": str(index), "empty": torch.empty(0, 3, device="cpu")}


def as_they_are(samples: list[Any]) -> list[Any]:
    return samples


def use_another_device(worker: int) -> None:
    torch.set_default_device("meta")


@pytest.mark.parametrize("collate_fn", [None, as_they_are])
def test_batches_come_whatever_the_default_device_of_trainer_and_worker(ours: Way, collate_fn: Any) -> None:
    def case(make: Maker) -> Any:
        loader = make(OnTheCpu(), batch_size=3, collate_fn=collate_fn, worker_init_fn=use_another_device)
        batches = iter(loader)  # outside: torch draws a seed there, where the default device says
        with torch.device("meta"):
            return list(batches)

    assert len(assert_same(ours, case)) == 4


def test_a_stateful_loader_can_be_made_whatever_the_default_device() -> None:
    with torch.device("meta"):
        assert StatefulDataLoader(OnTheCpu()).generator.device.type == "cpu"
