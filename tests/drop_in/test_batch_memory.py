"""Memory that user code can reach does not change after `next()` has returned.

Every batch is shown in one of many ways, something is done to it, it is dropped, and what shows it is kept for a while,
as long as more batches come than there are slots. What was shown stays what it was, whatever happens to the batch.

ANTIFREEZE_EXAMPLES=20 python -m pytest tests/drop_in/test_batch_memory.py
"""

import copy
import ctypes
import gc
import io
import itertools
import os
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from drop_in.examples import examples
from drop_in.harness import Way, our_way
from drop_in.kinds import as_it_is

pytestmark = [pytest.mark.deadline(60 + examples.deadline_s), pytest.mark.usefixtures("not_for_torch")]

LARGE, SMALL, TINY = 20_000, 1_500, 3
"""Floats: lent with its slot; copied in one piece with the rest; copied for itself."""
ROUNDS = 2
MOST_HELD = 12


class Frame:
    """A class of the user that sends its memory beside the pickle, as `pickle` offers."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Frame, (pickle.PickleBuffer(self.content),)


class Batches(Dataset[Any]):
    """Everything in batch `i` is full of `i`; every third one is small altogether."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        count = LARGE if index % 3 else SMALL
        value = float(index)
        return {
            "large": torch.full((count,), value),
            "brain float": torch.full((count,), index % 100, dtype=torch.bfloat16),
            "turned": torch.full((100, count // 100), value).t(),
            "small": torch.full((SMALL,), value),
            "tiny": torch.full((TINY,), value),
            "array": np.full(count, value, "f4"),
            "frame": Frame(bytearray(np.full(count, value, "f4").tobytes())),
        }


FACES: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda tensor: tensor,
    "a row": lambda tensor: tensor[1:],
    "detached": lambda tensor: tensor.detach(),
    "its storage": lambda tensor: tensor.untyped_storage(),
    "a tensor on its storage": lambda tensor: torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()),
    "an array": lambda tensor: bare(tensor).numpy(),
    "a part of an array": lambda tensor: bare(tensor).numpy()[1:],
    "a memoryview": lambda tensor: memoryview(bare(tensor).numpy()),
    "a tensor of an array": lambda tensor: torch.from_numpy(bare(tensor).numpy()),
    "a tensor by DLPack": torch.from_dlpack,
    "an array by DLPack": lambda tensor: np.from_dlpack(bare(tensor)),
    "a ctypes array": lambda tensor: (ctypes.c_char * TINY).from_buffer(dense(bare(tensor).numpy())),
    "a parameter": torch.nn.Parameter,
    "an iterator": lambda tensor: iter([tensor]),
}


def bare(tensor: torch.Tensor) -> torch.Tensor:
    """What numpy can show."""
    return tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor


def dense(array: Any) -> Any:
    return array if array.flags.c_contiguous else array.T


def shared(tensor: torch.Tensor) -> None:
    tensor.share_memory_()
    tensor.fill_(-1)


def saved(tensor: torch.Tensor) -> None:
    torch.save(tensor, io.BytesIO())


def resized(tensor: torch.Tensor) -> None:
    with suppress(RuntimeError):
        tensor.untyped_storage().resize_(10 * LARGE)
    with suppress(RuntimeError):
        tensor.resize_(10 * LARGE)


def forked(tensor: torch.Tensor) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


DEEDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "nothing": lambda tensor: None,
    "shared": shared,
    "copied": copy.deepcopy,
    "pickled": pickle.dumps,
    "saved": saved,
    "resized": resized,
    "forked": forked,
    "required to have a gradient": lambda tensor: tensor.requires_grad_(),
}


class Pool:
    """Holds what it is told to hold, and when it is collected puts itself back."""

    all: ClassVar[list[Any]] = []

    def __init__(self, content: Any) -> None:
        self.content = content
        self.itself = self

    def __del__(self) -> None:
        self.all.append(self.content)


def brought_back(shown: Any) -> Any:
    """What a finalizer has saved from the collector."""
    Pool(shown)
    del shown
    gc.collect()
    return Pool.all.pop()


def by_another_thread(shown: Any) -> Any:
    """Another thread was the last to hold the batch itself."""
    thread = threading.Thread(target=lambda batch: None, args=([shown],))
    thread.start()
    thread.join()
    return shown


WAYS_TO_KEEP: dict[str, Callable[[Any], Any]] = {
    "held": lambda shown: shown,
    "brought back to life": brought_back,
    "held by another thread": by_another_thread,
}


class Held(NamedTuple):
    """What shows a batch, and what it shows."""

    name: str
    shown: Any
    content: bytes

    def check(self) -> None:
        now = content_of(self.shown)
        assert now == self.content, f"{self.name}: {now[:12]!r} instead of {self.content[:12]!r}"


def content_of(shown: Any) -> bytes:
    if isinstance(shown, Frame):
        shown = shown.content
    if isinstance(shown, Iterator):
        (shown,) = copy.copy(shown)
    if isinstance(shown, torch.UntypedStorage):
        shown = torch.empty(0, dtype=torch.uint8).set_(shown)
    if isinstance(shown, torch.Tensor):
        return bytes(shown.detach().contiguous().view(torch.uint8).numpy().data)
    return bytes(shown)


def parts_and_faces() -> list[tuple[str, str, str, str]]:
    tensors = ("large", "brain float", "turned", "small", "tiny")
    every = itertools.product(tensors, FACES, DEEDS, WAYS_TO_KEEP)
    others = itertools.product(("array", "frame"), ["itself"], ["nothing"], WAYS_TO_KEEP)
    return [*every, *others]


SHOWS_THE_STORAGE = {
    *("itself", "a row", "detached", "its storage", "a tensor on its storage"),
    *("a parameter", "an iterator", "a tensor by DLPack"),
}


def is_torchs_own(face: str, deed: str) -> bool:
    """Where what is shown is the storage, and it is the storage that changes: so it is with any tensor."""
    return deed in ("shared", "resized") and face in SHOWS_THE_STORAGE


def hold(number: int, batch: Any, part: str, face: str, deed: str, way: str) -> Held:
    tensor = batch[part]
    shown = FACES[face](tensor) if isinstance(tensor, torch.Tensor) else tensor
    content = content_of(shown)
    if isinstance(tensor, torch.Tensor):
        DEEDS[deed](tensor)
    del tensor
    batch.clear()
    return Held(f"batch {number}: {part}, {face}, {deed}, {way}", WAYS_TO_KEEP[way](shown), content)


@pytest.mark.scan
@pytest.mark.parametrize("seed", range(examples.count(1)))
def test_what_shows_a_batch_shows_the_same_for_as_long_as_it_lives(seed: int) -> None:
    ours: Way = our_way("grown")
    rng = random.Random(seed)
    cases = [each for each in parts_and_faces() if not is_torchs_own(each[1], each[2])]
    rng.shuffle(cases)
    if examples.times <= 1:
        cases = cases[: examples.count(400)]
    batches = iter(ours.make(Batches(), batch_size=None, collate_fn=as_it_is, prefetch_factor=3))
    held: list[Held] = []
    for (number, batch), case in zip(enumerate(batches), cases, strict=False):
        assert float(batch["large"][-1]) == number
        held.append(hold(number, batch, *case))
        del batch
        while len(held) > MOST_HELD or (held and rng.random() < 0.4):
            held.pop(rng.randrange(len(held))).check()
    del batches
    gc.collect()
    for each in held:
        each.check()
