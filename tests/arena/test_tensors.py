"""Tensors over memory that they do not own."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze.engine.arena import segment as memory
from antifreeze.engine.arena.tensors import storage_over, tensor_over

COUNT = 5000


class Owner(bytearray):
    """Memory that can be referred to weakly."""


def from_storage(owner: Any) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage_over(owner, 0, COUNT))


MAKERS: dict[str, Callable[[Any], torch.Tensor]] = {
    "uint8": lambda owner: tensor_over(owner, torch.uint8, (COUNT,), 0),
    "float32": lambda owner: tensor_over(owner, torch.float32, (COUNT // 4,), 0),
    "bfloat16": lambda owner: tensor_over(owner, torch.bfloat16, (COUNT // 2,), 0).view(torch.uint8),
    "on a storage": from_storage,
}
FACES: dict[str, Callable[[torch.Tensor], Any]] = {
    "an array": lambda tensor: tensor.numpy(),
    "a part of an array": lambda tensor: tensor.numpy()[3:],
    "a memoryview": lambda tensor: memoryview(tensor.numpy()),
    "a tensor of an array": lambda tensor: torch.from_numpy(tensor.numpy()).numpy(),
    "an array by DLPack": np.from_dlpack,
    "an array of a row": lambda tensor: tensor[1:].numpy(),
    "an array of the detached": lambda tensor: tensor.detach().numpy(),
}


@pytest.mark.long(but=5)
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("face", FACES)
def test_whatever_shows_a_tensor_keeps_its_memory_when_torch_moves_the_storage(make: str, face: str) -> None:
    """Sharing gives a storage other memory, and lets go of what it had."""
    owner = Owner(b"\x01" * COUNT)
    end = weakref.ref(owner)
    tensor = MAKERS[make](owner)
    before = tensor.clone()
    del owner
    shown = FACES[face](tensor)
    tensor.share_memory_()
    assert tensor.is_shared() and torch.equal(tensor, before)
    tensor.fill_(7)
    del tensor
    gc.collect()
    assert end() is not None
    assert set(bytes(memoryview(shown).cast("B"))) == {1}
    del shown
    assert end() is None


@pytest.mark.parametrize("make", MAKERS)
def test_memory_goes_with_the_last_tensor(make: str) -> None:
    owner = Owner(COUNT)
    end = weakref.ref(owner)
    tensor = MAKERS[make](owner)
    row = tensor[1:]
    del owner, tensor
    assert end() is not None
    del row
    assert end() is None


def test_what_keeps_the_memory_is_not_copied_with_a_tensor() -> None:
    made = memory.create(1)
    made.close_descriptor()
    tensor = tensor_over(made.owner(), torch.uint8, (COUNT,), 0)
    copies = [tensor.clone(), tensor.untyped_storage().clone(), torch.empty(0).set_(tensor.view(torch.float32).clone())]
    assert not any(
        hasattr(getattr(copy, "untyped_storage", lambda copy=copy: copy)(), "_antifreeze_memory") for copy in copies
    )
    assert vars(tensor) == {}


def test_tensors_lie_on_the_cpu_whatever_the_default_device() -> None:
    owner = Owner(COUNT)
    with torch.device("meta"):
        assert tensor_over(owner, torch.bfloat16, (4,), 0).is_cpu
        assert tensor_over(owner, torch.int32, (4,), 0).is_cpu
        assert storage_over(owner, 0, 4).device.type == "cpu"
