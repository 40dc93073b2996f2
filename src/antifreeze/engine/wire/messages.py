"""Everything that is said between trainer, stem and workers: one frozen class per meaning.

A message is small; whatever is large lies in shared memory, and the message says where.
"""

from __future__ import annotations

import copyreg
import io
import operator
import pickle
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import cloudpickle
import torch

from antifreeze.engine.numbers import SlotNo, TicketNo, WorkerNo


@dataclass(frozen=True, slots=True)
class Work:
    """To a worker: make this batch."""

    ticket: TicketNo
    index: Any
    slot: SlotNo | None
    """Where to put it; None: into new memory, sent along with the answer."""
    slot_bytes: int
    """Size of the slot; its descriptor comes with the message when the worker has not got the slot's memory yet."""
    forget: tuple[SlotNo, ...]
    """Slots that are gone: the worker lets go of their memory."""


@dataclass(frozen=True, slots=True)
class Leave:
    """To a worker or a stem: nothing more to do, please leave."""


@dataclass(frozen=True, slots=True)
class Filled:
    """From a worker: the batch is whole."""

    ticket: TicketNo
    offset: int
    structure_bytes: int
    table_bytes: int
    made_bytes: int
    """Size of the memory that the worker made for it and sends along; 0: the batch is in the slot it was given."""


@dataclass(frozen=True, slots=True)
class Failed:
    """From a worker: there is no batch, and this is why."""

    ticket: TicketNo
    error: bytes
    """The pickled exception, or torch's wrapper of it."""


@dataclass(frozen=True, slots=True)
class Fork:
    """To a stem: bring up this worker; its channel and its lifeline come with the message."""

    worker: WorkerNo


@dataclass(frozen=True, slots=True)
class Kill:
    """To a stem: kill this process and all that it started."""

    pid: int


@dataclass(frozen=True, slots=True)
class Born:
    """From a stem: the worker lives; its pidfd comes with the message."""

    worker: WorkerNo
    pid: int


@dataclass(frozen=True, slots=True)
class Exited:
    """From a stem: this worker has ended."""

    worker: WorkerNo
    pid: int
    exitcode: int | None


@dataclass(frozen=True, slots=True)
class Grow:
    """To the clean base: fork a stem for one iterator; its control channel and its payload come with the message."""


@dataclass(frozen=True, slots=True)
class Grown:
    """From the clean base: the stem lives; its pidfd comes with the message."""

    pid: int


@dataclass(frozen=True, slots=True)
class Settled:
    """From a clean stem: the dataset has arrived; these globals of user modules could not be made as the trainer's."""

    differing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unfit:
    """From a clean stem: the dataset could not be rebuilt, and this is why."""

    error: bytes


Message = Work | Leave | Filled | Failed | Fork | Kill | Born | Exited | Grow | Grown | Settled | Unfit

_KINDS: tuple[type[Message], ...] = (
    Work,
    Leave,
    Filled,
    Failed,
    Fork,
    Kill,
    Born,
    Exited,
    Grow,
    Grown,
    Settled,
    Unfit,
)


def _values_of(kind: type[Message]) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(kind)]
    if not names:
        return lambda _: ()
    if len(names) == 1:
        (name,) = names
        return lambda message: (getattr(message, name),)
    return operator.attrgetter(*names)


_ENCODERS = {kind: (number, _values_of(kind)) for number, kind in enumerate(_KINDS)}


def encode(message: Message) -> bytes:
    """A message as bytes: its kind and its fields."""
    number, values = _ENCODERS[type(message)]
    content = (number, *values(message))
    if type(message) is Work:
        content = (number, message.ticket, _dump_index(message.index), *content[3:])
    return pickle.dumps(content, 5)


def decode(raw: bytes | bytearray) -> Message:
    """The message that these bytes are."""
    number, *values = pickle.loads(raw)
    kind = _KINDS[number]
    if kind is Work:
        values[1] = _load_index(values[1])
    message: Message = kind(*values)
    return message


@dataclass(frozen=True, slots=True)
class Unreadable:
    """In place of an index that could not be rebuilt in the worker."""

    error: Exception


def _dump_index(index: Any) -> bytes:
    stream = io.BytesIO()
    try:
        _IndexPickler(stream, 5).dump(index)
    except Exception:  # a sampler may yield anything, and say anything when it is pickled
        return cloudpickle.dumps(index, 5)  # type: ignore[no-any-return]
    return stream.getvalue()


def _load_index(raw: bytes) -> Any:
    try:
        return pickle.loads(raw)
    except Exception as error:  # whatever its class does when it is rebuilt: the ticket is told, not the worker ended
        return Unreadable(error)


def _compact(tensor: torch.Tensor) -> Any:
    """An index that is a part of a tensor must not carry the whole of it along, as pickle would have it."""
    return torch.Tensor.clone(tensor).__reduce_ex__(5)


class _IndexPickler(pickle.Pickler):
    dispatch_table = ChainMap[Any, Any]({torch.Tensor: _compact}, copyreg.dispatch_table)  # noqa: RUF012
