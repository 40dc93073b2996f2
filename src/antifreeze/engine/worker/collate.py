"""`default_collate` in a worker: stacks straight into the slot when it is the loader's own collate function.

torch's version stacks into a new file in `/dev/shm` for every tensor of every batch. Ours takes its place in torch's
table of collate functions, so that user code which calls `default_collate` itself gets ordinary memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data._utils import collate as torch_collate

# Below this, a place in the slot costs more than the copy that it saves.
IN_PLACE_FROM = 64 << 10

Room = Callable[[tuple[int, ...], torch.dtype, int], torch.Tensor | None]

_room: Room | None = None


def take_over() -> None:
    """Put our stacking in place of torch's, unless the user has put something there."""
    table = torch_collate.default_collate_fn_map
    if table.get(torch.Tensor) is torch_collate.collate_tensor_fn:
        table[torch.Tensor] = collate_tensors


@contextmanager
def into(room: Room) -> Iterator[None]:
    """While this lasts, large tensors are stacked into what `room` gives."""
    global _room
    _room = room
    try:
        yield
    finally:
        _room = None


def collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """Stack samples; dtype and shape are the first sample's, as in torch's workers."""
    first = batch[0]
    if first.is_nested or first.layout is not torch.strided:
        # torch's own refusal, in torch's own words
        return torch_collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)  # type: ignore[no-any-return]
    if type(first) is not torch.Tensor or not first.is_cpu:
        return torch.stack(batch, 0)
    length = len(batch) * first.nbytes
    if length >= IN_PLACE_FROM and _room is not None:
        out = _room((len(batch), *first.shape), first.dtype, length)
        if out is not None:
            return _stack_into(out, batch)
    stacked = torch.stack(batch, 0)
    if stacked.dtype is first.dtype:
        return stacked
    return _stack_into(torch.empty(stacked.shape, dtype=first.dtype), batch)


def _stack_into(out: torch.Tensor, batch: Any) -> torch.Tensor:
    try:
        return torch.stack(batch, 0, out=out)
    except RuntimeError:
        # Samples of different shapes or that require grad: without `out`, torch says what is wrong, or does it.
        return torch.stack(batch, 0)
