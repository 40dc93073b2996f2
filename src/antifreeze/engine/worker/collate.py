"""`default_collate` in a worker: stacks straight into the slot when it is the loader's own collate function.

torch's version stacks into a new file in `/dev/shm` for every tensor of every batch. Ours takes its place in torch's
table of collate functions, so that user code which calls `default_collate` itself gets ordinary memory. The room in the
slot is handed down as an argument, and only through types whose code is Python's own: user code that runs meanwhile (a
lazy sample, a thread of the dataset, a mapping class that keeps what is put into it) never meets memory that the next
batch overwrites.
"""

from __future__ import annotations

import array
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from antifreeze.torch_side import tensors
from antifreeze.torch_side.workers import collating

Room = Callable[[int, torch.Tensor], torch.Tensor | None]

_PLAIN_TENSORS = {torch.Tensor}
_has_torch_function = tensors.has_torch_function
_count_modes = tensors.count_function_modes


def _table() -> dict[Any, Any]:
    return collating.default_collate_fn_map  # type: ignore[no-any-return]


def take_over() -> None:
    """Put our function in place of torch's, unless the user has put something there."""
    if _table().get(torch.Tensor) is collating.collate_tensor_fn:
        _table()[torch.Tensor] = collate_tensors


def give_back() -> None:
    """Put torch's own function where ours is."""
    if _table().get(torch.Tensor) is collate_tensors:
        _table()[torch.Tensor] = collating.collate_tensor_fn


def is_ours() -> bool:
    """Whether nobody else's function is in the table: one could keep what was stacked, or stack it for something else."""
    known = collating.__name__, __name__
    return all(getattr(function, "__module__", None) in known for function in _table().values())


def refuses_none() -> bool:
    """Whether `default_collate` can make nothing of None: nobody has put a function for it into the table."""
    return type(None) not in _table()


class IntoSlot:
    """The loader's own `default_collate`: what it stacks lies in the room that it was given, where there is room."""

    __slots__ = ("_room", "_table")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._table = dict(_table())

    def __call__(self, batch: Any) -> Any:
        """The batch; in ordinary memory where the user's functions or modes would see its tensors before it is sent."""
        if collating.default_collate_fn_map != self._table or _is_watched():
            return collating.default_collate(batch)
        return collate_samples(batch, self._room)


def collate_samples(batch: Any, room: Room) -> Any:
    """What `default_collate` does, with a short way for what most datasets give: dicts, tuples and lists of tensors."""
    first = batch[0]
    kind = type(first)
    if kind is torch.Tensor:
        return collate_tensors(batch, room=room)
    if kind is dict:
        return {key: collate_samples([sample[key] for sample in batch], room) for key in first}
    if kind in (tuple, list) and len(set(map(len, batch))) == 1:  # if not, torch has words for it
        return [collate_samples(samples, room) for samples in zip(*batch, strict=True)]
    if kind is int:
        return collate_ints(batch)
    if kind is float:
        return collate_floats(batch)
    function = _table().get(kind)
    if function is not None and function is collating.collate_numpy_array_fn:
        return function(batch, collate_fn_map={torch.Tensor: partial(collate_tensors, room=room)})
    if _is_generated(kind):
        return kind(*[collate_samples(samples, room) for samples in zip(*batch, strict=False)])
    return collating.default_collate(batch)


def collate_tensors(batch: Any, *, collate_fn_map: Any = None, room: Room | None = None) -> torch.Tensor:
    """Stack samples; dtype and shape are the first sample's, as in torch's workers."""
    first = batch[0]
    if first.is_nested or first.layout is not torch.strided:
        # torch's own refusal, in torch's own words
        return collating.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)  # type: ignore[no-any-return]
    if not first.is_cpu or first.is_quantized:
        return torch.stack(batch, 0)
    if type(first) is not torch.Tensor:
        out = first.new()  # torch's way to make one of its kind, where it is one
        return (
            _stack_into(out.resize_(len(batch), *first.size()), batch)
            if type(out) is type(first)
            else torch.stack(batch, 0)
        )
    out = None
    if room is not None and (not _has_torch_function(batch) or _PLAIN_TENSORS.issuperset(map(type, batch))):
        out = room(len(batch), first)  # else a subclass of the user would see what it is stacked into
    if out is None:
        # Stacked into nothing, samples that are not contiguous would make a batch that is not, as never in torch.
        out = torch.empty((len(batch), *first.shape), dtype=first.dtype, device=first.device)
    return _stack_into(out, batch)


def collate_ints(batch: Any) -> torch.Tensor:
    """A tensor of integers, in a quarter of the time that torch takes to find out what each of them is."""
    packed = _packed("q", int, batch)
    return torch.tensor(batch) if packed is None else torch.frombuffer(packed, dtype=torch.int64)


def collate_floats(batch: Any) -> torch.Tensor:
    """A tensor of doubles, likewise."""
    packed = _packed("d", float, batch)
    return torch.tensor(batch, dtype=torch.float64) if packed is None else torch.frombuffer(packed, dtype=torch.float64)


def _packed(code: str, kind: type, batch: Any) -> array.array[Any] | None:
    """The numbers side by side; None where only torch knows what it would make of them."""
    # A default device is for torch to obey.
    if _count_modes() or not {kind}.issuperset(map(type, batch)):
        return None
    try:
        return array.array(code, batch)
    except OverflowError:
        return None


def _stack_into(out: torch.Tensor, batch: Any) -> torch.Tensor:
    try:
        return torch.stack(batch, 0, out=out)
    except (RuntimeError, TypeError) as error:
        is_no_stack = isinstance(error, TypeError)
    # Behind the handler, so that no error has another behind it. Either torch says here what is wrong, or it does it.
    if is_no_stack:  # one of them is no tensor, or of a dtype that does not go with the first
        return collating.collate_tensor_fn(batch)  # type: ignore[no-any-return]
    return torch.stack(batch, 0)  # they have different shapes, or require grad


def _is_watched() -> bool:
    """Whether a mode of the user sees the arguments of torch's functions, and so what is stacked into."""
    count = _count_modes()
    if count and any(type(tensors.function_mode_at(place)) is not tensors.DefaultDevice for place in range(count)):
        return True
    return tensors.count_dispatch_modes() > 0


def _is_generated(kind: type) -> bool:
    """Whether this is a named tuple whose making runs no code of the user: all of it comes from `namedtuple`."""
    return (
        issubclass(kind, tuple)
        and hasattr(kind, "_fields")
        and str(getattr(kind.__new__, "__module__", "")).startswith("namedtuple_")
        and kind.__init__ is object.__init__
        and type(kind) is type
    )
