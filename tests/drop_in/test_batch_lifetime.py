"""Whatever points into a batch keeps its memory, and when nothing does any more, the memory is used again.

One batch is held, in one way or another, while many more are loaded: its bytes stay what they were.
"""

import ctypes
import gc
import re
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from drop_in.harness import Maker, Way, assert_same
from drop_in.kinds import as_it_is

COUNT = 30_000
"""Floats of one sample: more than is copied out of a slot."""
MORE = 9
"""Batches that are loaded in between: more than there are slots."""


class Numbered(Dataset[torch.Tensor]):
    """Sample `i` is full of `i`."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((COUNT,), float(index))


def backward(batch: torch.Tensor) -> Callable[[], Any]:
    """Only the graph holds the batch."""
    weight = torch.ones(COUNT, requires_grad=True)
    loss = (batch[0] * weight).sum()

    def gradient() -> Any:
        loss.backward()
        return as_array(weight.grad)

    return gradient


def later(convert: Callable[[Any], Any]) -> Callable[[Any], Callable[[], Any]]:
    return lambda held: lambda: convert(held)


def as_array(held: Any) -> Any:
    array = held.numpy() if isinstance(held, torch.Tensor) else held
    return array.reshape(-1)[:COUNT]


def as_floats(buffer: Any) -> Any:
    return np.frombuffer(buffer, dtype=np.float32)[:COUNT]


HOLDERS: dict[str, Callable[[torch.Tensor], Callable[[], Any]]] = {
    "the tensor": later(as_array),
    "a row": lambda batch: later(as_array)(batch[0]),
    "a view of a view": lambda batch: later(as_array)(batch.view(-1, 10)[:, :10][1:].t()),
    "one element": lambda batch: later(as_array)(batch[0, 17]),
    "expanded": lambda batch: later(as_array)(batch[:, :1].expand(2, 9)),
    "detached": lambda batch: later(as_array)(batch.detach()),
    "data": lambda batch: later(as_array)(batch.data),
    "unbound": lambda batch: later(lambda rows: as_array(rows[0]))(batch.unbind()),
    "another dtype": lambda batch: later(lambda held: as_array(held.view(torch.float32)))(batch.view(torch.uint8)),
    "its storage": lambda batch: later(lambda held: as_array(torch.empty(0).set_(held)))(batch.untyped_storage()),
    "a tensor set to its storage": lambda batch: later(as_array)(torch.empty(0).set_(batch.untyped_storage())),
    "an array": lambda batch: later(as_array)(batch.numpy()),
    "a part of an array": lambda batch: later(as_array)(batch.numpy()[:, 3:30:2]),
    "a memoryview": lambda batch: later(as_floats)(memoryview(batch.numpy()).cast("B")),
    "a part of a memoryview": lambda batch: later(as_floats)(memoryview(batch.numpy()).cast("B")[400:4400]),
    "a tensor by DLPack": lambda batch: later(as_array)(torch.from_dlpack(batch)),
    "a tensor by DLPack of an array": lambda batch: later(as_array)(torch.from_dlpack(batch.numpy())),
    "an array by DLPack": lambda batch: later(as_array)(np.from_dlpack(batch)),
    "a DLPack capsule": lambda batch: later(lambda held: as_array(torch.from_dlpack(held)))(batch.__dlpack__()),
    "a tensor of an array": lambda batch: later(as_array)(torch.from_numpy(batch.numpy())),
    "a ctypes array": lambda batch: later(as_floats)((ctypes.c_float * COUNT).from_buffer(batch.numpy())),
    "a graph": backward,
    "a parameter": lambda batch: later(lambda held: as_array(held.detach()))(torch.nn.Parameter(batch)),
    "a leaf": lambda batch: later(lambda held: as_array(held.detach()))(batch.requires_grad_()),
    "a dataset": lambda batch: later(lambda held: as_array(held[0][0]))(TensorDataset(batch)),
    "a closure": lambda batch: lambda: as_array(batch),
    "a cycle": lambda batch: later(lambda held: as_array(held[0]))(in_a_cycle(batch)),
}


def in_a_cycle(batch: torch.Tensor) -> list[Any]:
    cycle: list[Any] = [batch]
    cycle.append(cycle)
    return cycle


def shared_memory() -> list[tuple[int, int]]:
    """Where memory files are mapped into this process."""
    spans = re.findall(r"^(\w+)-(\w+) .*/memfd:", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return [(int(begin, 16), int(end, 16)) for begin, end in spans]


def is_lent(tensor: torch.Tensor) -> bool:
    return any(begin <= tensor.data_ptr() < end for begin, end in shared_memory())


def shared_bytes() -> int:
    return sum(end - begin for begin, end in shared_memory())


@pytest.mark.long
@pytest.mark.usefixtures("not_for_torch")
def test_whatever_holds_a_batch_keeps_its_bytes_and_what_lets_go_of_it_frees_it(ours: Way) -> None:
    batches = iter(enumerate(ours.make(Numbered(), batch_size=1)))
    for name, hold in HOLDERS.items():
        number, batch = next(batches)
        while not is_lent(batch):  # the ones before are let go of when the next is asked for
            number, batch = next(batches)
        content = hold(batch)
        del batch
        for other, another in (next(batches) for _ in range(MORE)):
            assert float(another[0, 5]) == other, f"{name}: batch {other} is not what it was"
            another.fill_(-1)  # a slot that is used again shows this
            del another
        values = np.array(content())
        assert values.size and (values == number).all(), f"{name}: {values} instead of {number}"
        del content
        gc.collect()
    sizes = shared_bytes()
    assert sizes <= 16 * 2 * COUNT * 4, f"{sizes} bytes are mapped: what was let go of is not used again"


def test_a_batch_that_is_changed_through_any_of_its_faces_changes_alone(ours: Way) -> None:
    def case(make: Maker) -> Any:
        kept = []
        for number, batch in enumerate(make(Numbered(), sampler=range(24), batch_size=1)):
            face = [batch, batch.numpy(), torch.from_dlpack(batch), batch[0], batch.view(-1), batch.data][number % 6]
            face[...] = -float(number)
            kept.append((batch[0, :3].tolist(), batch[0, -1].item()))
            assert bool((batch == -number).all())
        return kept

    assert_same(ours, case)


def test_training_on_batches_gives_what_it_gives_with_torch(ours: Way) -> None:
    """Forward, backward, in-place changes of the batch, and a graph over several batches."""

    def case(make: Maker) -> Any:
        torch.manual_seed(3)
        weight = torch.rand(COUNT, requires_grad=True)
        losses, delayed = [], []
        for batch in make(Numbered(), sampler=range(20), batch_size=2):
            batch.div_(20).requires_grad_()
            loss = (batch @ weight).square().mean()
            delayed.append(loss)
            if len(delayed) == 3:
                torch.stack(delayed).sum().backward()
                assert batch.grad is not None and weight.grad is not None
                losses.append((loss.item(), float(batch.grad.norm())))
                weight.data.sub_(weight.grad, alpha=1e-6)
                weight.grad = None
                delayed.clear()
        return losses, weight.detach().clone()

    assert_same(ours, case)


class Pairs(Dataset[Any]):
    """A large tensor, another on the same storage, a small one, and an array."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        whole = torch.full((2, COUNT), float(index))
        return {"whole": whole, "row": whole[1], "label": torch.tensor(index), "array": np.full(COUNT, index, "f4")}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("key", ["whole", "row", "label", "array"])
def test_one_part_of_a_batch_that_is_kept_stays_as_it_is(ours: Way, key: str) -> None:
    kept = []
    for number, batch in enumerate(ours.make(Pairs(), batch_size=None, collate_fn=as_it_is)):
        assert all(float(as_array(part)[-1]) == number for part in batch.values())
        kept.append(batch[key])
        for name, part in batch.items():
            if name not in ("whole", "row") or key not in ("whole", "row"):
                part[...] = part if name == key else -1
    assert all(bool((as_array(part) == number).all()) for number, part in enumerate(kept))


class Mixed(Dataset[Any]):
    """A label beside many tensors, none of which is large: together they are."""

    def __getitem__(self, index: int) -> Any:
        return {"label": torch.tensor([index]), **{f"t{k}": torch.full((15_000,), float(index)) for k in range(10)}}


@pytest.mark.long(but=1)
@pytest.mark.usefixtures("not_for_torch")
def test_a_label_that_is_kept_does_not_keep_the_rest_of_its_batch(ours: Way) -> None:
    labels = []
    loader = ours.make(Mixed(), sampler=range(60), batch_size=None, collate_fn=as_it_is, num_workers=1)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0] + shared_bytes()
        for batch in loader:
            labels.append(batch["label"])
            del batch
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] + shared_bytes() - before
    finally:
        tracemalloc.stop()
    assert [int(label) for label in labels] == list(range(60))
    assert grown < 6 << 20, f"60 labels hold {grown >> 20} MB; all batches together have 36"


@pytest.mark.long(but=1)
@pytest.mark.usefixtures("not_for_torch")
def test_a_batch_dies_when_its_last_user_does(ours: Way) -> None:
    """By counting references alone: a loop must not wait for the garbage collector to get its memory back."""
    batches = iter(ours.make(Pairs(), batch_size=None, collate_fn=as_it_is))
    gc.collect()
    gc.disable()
    try:
        batch = next(batches)
        assert is_lent(batch["whole"])
        watched = [weakref.ref(part) for part in batch.values()]
        del batch
        assert not [ref() for ref in watched if ref() is not None]
        lent = [is_lent(next(batches)["whole"]) for _ in range(30)]
    finally:
        gc.enable()
    assert all(lent), "slots were not given back"
