"""`default_collate` in a worker: stacks straight into the slot when it is the loader's own collate function.

torch's version stacks into a new file in `/dev/shm` for every tensor of every batch. Ours takes its place in torch's
table of collate functions, so that user code which calls `default_collate` itself gets ordinary memory.
"""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils import collate as torch_collate

Room = Callable[[int, torch.Tensor], torch.Tensor | None]

_room: Room | None = None


def _table() -> dict[Any, Any]:
    return torch_collate.default_collate_fn_map


def take_over() -> None:
    """Put our functions in place of torch's, unless the user has put something there."""
    table = _table()
    for kind, torchs, ours in _PAIRS:
        if table.get(kind) is torchs:
            table[kind] = ours


def give_back() -> None:
    """Put torch's own functions where ours are."""
    table = _table()
    for kind, torchs, ours in _PAIRS:
        if table.get(kind) is ours:
            table[kind] = torchs


def is_ours() -> bool:
    """Whether nobody else's function is in the table: one could keep what was stacked, or stack it for something else."""
    return all(function.__module__ in (torch_collate.__name__, __name__) for function in _table().values())


def refuses_none() -> bool:
    """Whether `default_collate` can make nothing of None: nobody has put a function for it into the table."""
    return type(None) not in _table()


class into:  # noqa: N801 - reads as the word it is; a generator would take three times as long
    """While this lasts, tensors are stacked into what `room` gives; None: into ordinary memory."""

    __slots__ = ("_given",)

    def __init__(self, room: Room | None) -> None:
        self._given = room

    def __enter__(self) -> None:
        global _room
        _room = self._given

    def __exit__(self, *_: object) -> None:
        global _room
        _room = None


def collate_samples(batch: Any) -> Any:
    """What `default_collate` does, with a short way for what most datasets give: dicts, tuples and lists of tensors."""
    first = batch[0]
    kind = type(first)
    if kind is torch.Tensor:
        return collate_tensors(batch)
    if kind is dict:
        return {key: collate_samples([sample[key] for sample in batch]) for key in first}
    if kind in (tuple, list) and len(set(map(len, batch))) == 1:  # if not, torch has words for it
        return [collate_samples(samples) for samples in zip(*batch, strict=True)]
    return torch_collate.default_collate(batch)


def collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """Stack samples; dtype and shape are the first sample's, as in torch's workers."""
    first = batch[0]
    if first.is_nested or first.layout is not torch.strided:
        # torch's own refusal, in torch's own words
        return torch_collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)  # type: ignore[no-any-return]
    if not first.is_cpu or first.is_quantized:
        return torch.stack(batch, 0)
    if type(first) is not torch.Tensor:
        out = first.new()  # torch's way to make one of its kind, where it is one
        return (
            _stack_into(out.resize_(len(batch), *first.size()), batch)
            if type(out) is type(first)
            else torch.stack(batch, 0)
        )
    out = _room(len(batch), first) if _room is not None else None
    if (
        out is None
    ):  # stacked into nothing, samples that are not contiguous would make a batch that is not, as never in torch
        out = torch.empty((len(batch), *first.shape), dtype=first.dtype)
    return _stack_into(out, batch)


def collate_ints(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """A tensor of integers, in a quarter of the time that torch takes to find out what each of them is."""
    packed = _packed("q", int, batch)
    return torch.tensor(batch) if packed is None else torch.frombuffer(packed, dtype=torch.int64)


def collate_floats(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """A tensor of doubles, likewise."""
    packed = _packed("d", float, batch)
    return torch.tensor(batch, dtype=torch.float64) if packed is None else torch.frombuffer(packed, dtype=torch.float64)


_PAIRS = (
    (torch.Tensor, torch_collate.collate_tensor_fn, collate_tensors),
    (int, torch_collate.collate_int_fn, collate_ints),
    (float, torch_collate.collate_float_fn, collate_floats),
)


def _packed(code: str, kind: type, batch: Any) -> array.array[Any] | None:
    """The numbers side by side; None where only torch knows what it would make of them."""
    # Memory that torch has not made cannot be resized, and a default device is for torch to obey.
    if _room is None or torch._C._len_torch_function_stack() or not {kind}.issuperset(map(type, batch)):
        return None
    try:
        return array.array(code, batch)
    except OverflowError:
        return None


def _stack_into(out: torch.Tensor, batch: Any) -> torch.Tensor:
    try:
        return torch.stack(batch, 0, out=out)
    except RuntimeError:
        # Samples of different shapes or that require grad: without `out`, torch says what is wrong, or does it.
        return torch.stack(batch, 0)
