"""`pin_memory=True` with tensors and a real accelerator: the batches are torch's, and are pinned where torch's are."""

import os
import signal
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import Dataset

from drop_in.harness import Maker, assert_same, our_way, outcome
from user_scripts import RunScript

MEGABYTE = 1 << 20


@dataclass
class Plain:
    """Knows no way to be pinned."""

    tensor: torch.Tensor


Pair = namedtuple("Pair", ["left", "right"])

BATCHES: dict[str, Any] = {
    "tensor": torch.arange(12.0),
    "large tensor": torch.arange(MEGABYTE),
    "strided": torch.arange(24.0).reshape(4, 6).t()[1:, ::2],
    "empty": torch.empty(0, 3),
    "leaf": torch.ones(3, requires_grad=True),
    "sharing": [torch.arange(MEGABYTE)[:10], torch.arange(MEGABYTE)[5:]],
    "dict": {"x": torch.ones(5), "name": "text", "y": [torch.zeros(2, 2), 3, None, b"bytes"]},
    "namedtuple": Pair(torch.ones(2), (torch.zeros(3),)),
    "packed": pack_sequence([torch.ones(3), torch.ones(2)]),
    "dataclass": Plain(torch.ones(3)),
    "array": np.arange(MEGABYTE),
}


class Given(Dataset[Any]):
    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]


class Numbers(Dataset[torch.Tensor]):
    """Large enough to be lent; the first worker that comes to one of them dies, once."""

    def __init__(self, flag: Any, deadly: int) -> None:
        self.flag = flag
        self.deadly = deadly

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.deadly and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((MEGABYTE,), index, dtype=torch.int32)


def as_it_is(sample: Any) -> Any:
    return sample


def places(batch: Any) -> Any:
    """Which of its tensors are pinned."""
    match batch:
        case torch.Tensor():
            return batch.is_pinned()
        case PackedSequence():
            return batch.data.is_pinned(), batch.batch_sizes.is_pinned()
        case Plain():
            return batch.tensor.is_pinned()
        case dict():
            return {key: places(value) for key, value in batch.items()}
        case list() | tuple():
            return [places(value) for value in batch]
    return None


def copied(batch: Any) -> Any:
    """For comparing: a packed sequence as its parts."""
    return tuple(batch) if isinstance(batch, PackedSequence) else batch


@pytest.mark.parametrize("name", BATCHES)
def test_tensors_are_torchs_and_pinned_where_torchs_are(name: str) -> None:
    def case(make: Maker) -> Any:
        loader = make(Given(*[BATCHES[name]] * 3), batch_size=None, collate_fn=as_it_is, pin_memory=True)
        return [(copied(batch), type(batch).__name__, places(batch)) for batch in loader]

    assert_same(our_way("grown"), case)


@pytest.mark.parametrize("options", [{}, {"in_order": False}, {"persistent_workers": True}], ids=str)
def test_copies_that_run_beside_the_loop_are_right_also_after_a_death(tmp_path: Any, options: Any) -> None:
    loader = our_way("grown").make(
        Numbers(tmp_path / "flag", 17), batch_size=None, num_workers=3, pin_memory=True, **options
    )
    there = []
    for batch in loader:
        assert batch.is_pinned()
        there.append(batch.to(torch.accelerator.current_accelerator(), non_blocking=True))
        del batch
    numbers = [int(each[0]) for each in there]
    assert all(bool(each.eq(number).all()) for each, number in zip(there, numbers, strict=True))
    assert (sorted(numbers) if options.get("in_order") is False else numbers) == list(range(60))
    assert (tmp_path / "flag").exists()


def test_what_cannot_be_pinned_is_raised_in_torchs_words_and_the_next_batch_comes() -> None:
    def case(make: Maker) -> Any:
        loader = make(
            Given(torch.ones(1), Refusing(torch.ones(3)), torch.ones(2)),
            batch_size=None,
            collate_fn=as_it_is,
            pin_memory=True,
        )
        iterator = iter(loader)
        return [outcome(lambda: next(iterator)) for _ in range(3)]

    assert_same(our_way("grown"), case)


@dataclass
class Refusing(Plain):
    def pin_memory(self) -> Plain:
        raise ValueError("not this one")


EXIT = """
import torch
from antifreeze import DataLoader

class Images(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, index): return torch.ones(1 << 20)

loader = DataLoader(Images(), batch_size=4, num_workers=2, pin_memory=True, persistent_workers=True,
    multiprocessing_context="fork")
for number, batch in enumerate(loader):
    batch.to("cuda", non_blocking=True)
    if number == 9:
        break
print("leaving")
"""


def test_a_program_that_ends_while_batches_are_being_pinned_ends_well(run_script: RunScript) -> None:
    ended = run_script(EXIT).check()
    assert (ended.stdout, ended.stderr) == ("leaving\n", "")
