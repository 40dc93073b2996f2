"""`default_collate` into the slot."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

from antifreeze.engine.worker import collate
from antifreeze.engine.worker.collate import IN_PLACE_FROM, collate_tensors

LARGE = IN_PLACE_FROM // 8  # floats in each of two samples


class Slot:
    """Gives room once, and remembers what it was asked for."""

    def __init__(self, *, has_room: bool = True) -> None:
        self.has_room = has_room
        self.asked: list[tuple[tuple[int, ...], torch.dtype, int]] = []
        self.given: list[torch.Tensor] = []

    def room(self, shape: tuple[int, ...], dtype: torch.dtype, length: int) -> torch.Tensor | None:
        self.asked.append((tuple(shape), dtype, length))
        if not self.has_room:
            return None
        self.given.append(torch.zeros(shape, dtype=dtype))
        return self.given[-1]


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch_collate, "default_collate_fn_map", dict(torch_collate.default_collate_fn_map))
    collate.take_over()
    yield
    assert collate._room is None


def test_large_samples_are_stacked_into_the_slot() -> None:
    slot = Slot()
    with collate.into(slot.room):
        batch = collate_tensors([torch.full((LARGE,), 1.0), torch.full((LARGE,), 2.0)])
    assert slot.asked == [((2, LARGE), torch.float32, 2 * 4 * LARGE)]
    assert batch.data_ptr() == slot.given[0].data_ptr()
    assert batch[0].eq(1).all() and batch[1].eq(2).all()


def test_small_samples_do_not_ask_for_room() -> None:
    slot = Slot()
    with collate.into(slot.room):
        assert collate_tensors([torch.tensor(1), torch.tensor(2)]).tolist() == [1, 2]
    assert slot.asked == []


def test_a_slot_without_room_means_ordinary_memory() -> None:
    slot = Slot(has_room=False)
    with collate.into(slot.room):
        batch = collate_tensors([torch.ones(LARGE), torch.ones(LARGE)])
    assert len(slot.asked) == 1
    assert batch.eq(1).all() and not batch.is_shared()


def test_outside_of_the_loaders_own_collating_memory_is_ordinary() -> None:
    batch = collate_tensors([torch.ones(LARGE), torch.ones(LARGE)])
    assert batch.eq(1).all() and not batch.is_shared()


def test_the_slot_is_left_alone_again_after_an_error() -> None:
    def fail() -> None:
        with collate.into(Slot().room):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert collate._room is None


@pytest.mark.parametrize("in_slot", [False, True])
def test_samples_of_different_shape_are_refused_in_torchs_words(in_slot: bool) -> None:
    slot = Slot(has_room=in_slot)
    with (
        collate.into(slot.room),
        pytest.raises(RuntimeError, match="stack expects each tensor to be equal size, but got"),
    ):
        collate_tensors([torch.ones(LARGE), torch.ones(LARGE), torch.ones(LARGE + 1)])


@pytest.mark.parametrize("length", [3, LARGE])
@pytest.mark.parametrize(
    ("first", "second"),
    [(torch.float32, torch.float64), (torch.float64, torch.float32), (torch.int32, torch.int64)],
)
def test_the_dtype_is_the_first_samples_as_in_torchs_workers(
    length: int, first: torch.dtype, second: torch.dtype
) -> None:
    with collate.into(Slot().room):
        batch = collate_tensors([torch.ones(length, dtype=first), torch.ones(length, dtype=second)])
    assert batch.dtype is first
    assert batch.eq(1).all()


@pytest.mark.parametrize("length", [3, LARGE])
def test_samples_that_require_grad_are_stacked(length: int) -> None:
    with collate.into(Slot().room):
        batch = collate_tensors([torch.ones(length, requires_grad=True), torch.ones(length)])
    assert batch.shape == (2, length) and batch.requires_grad


class Labelled(torch.Tensor):
    """A tensor subclass."""


def test_tensor_subclasses_are_stacked_their_own_way() -> None:
    slot = Slot()
    with collate.into(slot.room):
        batch = collate_tensors([torch.ones(LARGE).as_subclass(Labelled)] * 2)
    assert type(batch) is Labelled
    assert slot.asked == []


def test_sparse_samples_are_refused_in_torchs_words() -> None:
    with pytest.raises(RuntimeError, match="sparse"):
        collate_tensors([torch.eye(3).to_sparse()] * 2)


def test_default_collate_of_any_structure_uses_the_slot(taken_over: None) -> None:
    slot = Slot()
    samples = [{"image": torch.full((LARGE,), float(k)), "label": k, "name": str(k)} for k in range(2)]
    with collate.into(slot.room):
        batch: Any = default_collate(samples)
    assert batch["image"].data_ptr() == slot.given[0].data_ptr()
    assert batch["label"].tolist() == [0, 1]
    assert batch["name"] == ["0", "1"]


def test_what_the_user_has_put_into_torchs_table_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(batch: Any, *, collate_fn_map: Any = None) -> str:
        return "own"

    monkeypatch.setattr(torch_collate, "default_collate_fn_map", {torch.Tensor: own})
    collate.take_over()
    assert torch_collate.default_collate_fn_map == {torch.Tensor: own}
