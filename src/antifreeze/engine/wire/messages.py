"""Everything that is said between trainer, stem and workers: one class per meaning.

A message is small; whatever is large lies in shared memory, and the message says where. (Named tuples: there are two
messages for every batch, and a frozen dataclass takes three times as long to make.)
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections import ChainMap
from typing import Any, Literal, NamedTuple

import cloudpickle
import torch

from antifreeze.engine.arena.layout import Parcel
from antifreeze.engine.numbers import SeatNo, SlotNo, TicketNo, WorkerNo

MishapKind = Literal["retried", "redone", "skipped", "replaced", "none"]
"""Fetched again by the policy; fetched again though no policy says so (StopIteration); left out; another one in its place;
None where a sample should be, raised as an error."""


Mark = bytes | tuple[bytes | None, ...]
"""Where a worker is, whole or in parts (`worker/parts.py`)."""


class Mishap(NamedTuple):
    """A sample that failed, and what was done about it; its texts are bounded."""

    kind: MishapKind
    position: int
    """Which sample of the batch, counted from 0; -1: the whole batch, fetched at once."""
    sample: str
    """What the dataset was asked for, as `repr` shows it."""
    attempt: int
    """Which attempt failed, counted from 1; 0: it was not fetched, because it is in quarantine."""
    exception: str
    """Type and message."""
    traceback: str
    remark: str = ""
    """What there is to say beside that, such as the index that took its place."""

    @property
    def is_loss(self) -> bool:
        """Whether the sample is missing from its batch."""
        return self.kind in ("skipped", "replaced")


class Work(NamedTuple):
    """To a worker: make this batch."""

    ticket: TicketNo
    index: Any
    slot: SlotNo | None
    """Where to put it; None: into new memory, sent along with the answer."""
    slot_bytes: int
    """Size of the slot; its descriptor comes with the message when the worker has not got the slot's memory yet."""
    forget: tuple[SlotNo, ...]
    """Slots that are gone: the worker lets go of their memory."""
    is_replay: bool = False
    """Make it and throw it away: it has been delivered, but generators have to move on as they did then."""
    seed: int | None = None
    """What its random numbers follow from; None: they go on from where they are."""
    leave_out: tuple[int, ...] = ()
    """Positions of samples in quarantine: treated as if they had failed, without being fetched."""
    quarantined: tuple[int, ...] = ()
    """All indices in quarantine, as far as they are numbers: not to be drawn in the place of another."""
    is_marked: bool = False
    """Say with the answer where the worker is after it, for those who want to begin there another time."""


class Resume(NamedTuple):
    """To a worker that takes over from another: its generators as they were."""

    state: bytes


class Tell(NamedTuple):
    """To a worker: say where you are, before this ticket."""

    ticket: TicketNo


class Told(NamedTuple):
    """From a worker: this is where it is before this ticket."""

    ticket: TicketNo
    mark: Mark | None
    """As with an answer."""


class Begin(NamedTuple):
    """To a worker that is kept, of an iterable dataset: the next pass over its stream begins."""

    first: TicketNo
    """The tickets of this pass have this number or a higher one."""
    shared_seed: int | None
    """Of a data pipe, for all its workers; None: it is none."""


class Withdraw(NamedTuple):
    """To a worker: if this ticket has not been begun, let it be; another has it."""

    ticket: TicketNo


class Leave(NamedTuple):
    """To a worker or a stem: nothing more to do, please leave."""


class Filled(NamedTuple):
    """From a worker: the batch is whole."""

    ticket: TicketNo
    parcel: Parcel
    definition: bytes
    """Of the parcel's form, if this is the first that refers to it."""
    body: bytearray | None
    """The batch itself, if it is small."""
    made_bytes: int
    """Size of the memory that the worker made for it and sends along; 0: the batch is in the slot it was given."""
    mishaps: tuple[Mishap, ...] = ()
    """What went wrong on the way."""
    mark: Mark | None = None
    """Where the worker is now, or what of that has changed since it last said so; empty: nothing. None: nobody wants
    to know, or it cannot tell."""


class Failed(NamedTuple):
    """From a worker: there is no batch, and this is why."""

    ticket: TicketNo
    error: bytes
    """The pickled exception, or torch's wrapper of it."""
    position: int = -1
    """Of the sample that raised; -1: it was none of them, or nobody knows which."""
    mishaps: tuple[Mishap, ...] = ()
    """What went wrong before that."""
    mark: Mark | None = None


class Emptied(NamedTuple):
    """From a worker: all samples of this batch were left out, and there is no batch."""

    ticket: TicketNo
    mishaps: tuple[Mishap, ...]
    mark: Mark | None = None


class Ended(NamedTuple):
    """From a worker: its part of the iterable dataset has ended, and there is no batch for this ticket."""

    ticket: TicketNo
    mishaps: tuple[Mishap, ...] = ()
    mark: Mark | None = None


class Returned(NamedTuple):
    """From a worker: this ticket was withdrawn in time, and nothing has been done about it."""

    ticket: TicketNo


class Spent(NamedTuple):
    """From a worker: another is to go on from its last snapshot; it does nothing more, and waits to be told to leave."""

    copied_bytes: int
    """How much of the memory that it shares with others it has copied."""
    grown_bytes: int = 0
    """By how much its own memory has grown, if that is the reason; else 0."""


class Fork(NamedTuple):
    """To a stem: bring up this worker; its channel, its lifeline and its board come with the message."""

    worker: WorkerNo
    seat: SeatNo


class Kill(NamedTuple):
    """To a stem: kill this process and all that it started."""

    pid: int


class Born(NamedTuple):
    """From a stem: the worker lives; its pidfd comes with the message."""

    seat: SeatNo
    pid: int


class Unborn(NamedTuple):
    """From a stem, or the clean base: no process could be had, and why, in words."""

    seat: SeatNo | None
    """Of the worker; None: it was to be a stem."""
    why: str


class Exited(NamedTuple):
    """From a stem: this worker has ended."""

    seat: SeatNo
    pid: int
    exitcode: int | None
    released_locks: int = 0
    """How many locks of multiprocessing it had taken with it, and the stem has released."""


class Grow(NamedTuple):
    """To the clean base: fork a stem for one iterator; its control channel and its payload come with the message."""


class Grown(NamedTuple):
    """From the clean base: the stem lives; its pidfd comes with the message."""

    pid: int


class Unfit(NamedTuple):
    """From a worker of a clean stem: the dataset could not be rebuilt, and this is why."""

    error: bytes


Message = (
    Work
    | Resume
    | Begin
    | Withdraw
    | Leave
    | Filled
    | Failed
    | Emptied
    | Ended
    | Returned
    | Spent
    | Fork
    | Kill
    | Born
    | Unborn
    | Exited
    | Grow
    | Grown
    | Unfit
    | Tell
    | Told
)

_KINDS: tuple[type[Message], ...] = (
    Work,
    Resume,
    Begin,
    Withdraw,
    Leave,
    Filled,
    Failed,
    Emptied,
    Ended,
    Returned,
    Spent,
    Fork,
    Kill,
    Born,
    Exited,
    Grow,
    Grown,
    Unfit,
    Tell,
    Told,
    Unborn,
)


_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_INTS = {int}


def encode(message: Message) -> bytes:
    """A message as bytes: its kind and its fields."""
    kind = type(message)
    if kind is Work:
        return _encode_work(message)  # type: ignore[arg-type]  # mypy does not narrow by `type() is`
    if kind is Filled:
        return _encode_filled(message)  # type: ignore[arg-type]
    return pickle.dumps((_NUMBERS[kind], *message), 5)


def decode(raw: bytes | bytearray) -> Message:
    """The message that these bytes are."""
    number, *values = pickle.loads(raw)
    kind = _KINDS[number]
    if kind is Work and type(values[1]) is bytes:
        values[1] = load_index(values[1])
    elif kind is Filled:
        values[1] = Parcel(*values[1])
    message: Message = kind(*values)
    return message


def _encode_work(work: Work) -> bytes:
    index = work.index
    if not (type(index) is list and _INTS.issuperset(map(type, index))):
        index = dump_index(index)  # bytes, which an index that goes as it is never is
    rest = work[2:] if work.leave_out or work.quarantined or work.is_marked else work[2:-3]
    return pickle.dumps((_NUMBERS[Work], work.ticket, index, *rest), 5)


def _encode_filled(filled: Filled) -> bytes:
    ticket, parcel, definition, body, made_bytes, mishaps, mark = filled
    if mishaps or mark is not None:
        return pickle.dumps((_NUMBERS[Filled], ticket, tuple(parcel), definition, body, made_bytes, mishaps, mark), 5)
    return pickle.dumps((_NUMBERS[Filled], ticket, tuple(parcel), definition, body, made_bytes), 5)


class Unreadable(NamedTuple):
    """In place of an index that could not be rebuilt in the worker."""

    error: Exception


def dump_index(index: Any) -> bytes:
    """An index as bytes, whatever it is made of; raises what its class raises."""
    stream = io.BytesIO()
    try:
        _IndexPickler(stream, 5).dump(index)
    except Exception:  # a sampler may yield anything, and say anything when it is pickled
        return cloudpickle.dumps(index, 5)  # type: ignore[no-any-return]
    return stream.getvalue()


def load_index(raw: bytes) -> Any:
    """The index that these bytes are, or Unreadable."""
    try:
        return pickle.loads(raw)
    except Exception as error:  # whatever its class does when it is rebuilt: the ticket is told, not the worker ended
        return Unreadable(error)


def _compact(tensor: torch.Tensor) -> Any:
    """An index that is a part of a tensor must not carry the whole of it along, as pickle would have it."""
    return torch.Tensor.clone(tensor).__reduce_ex__(5)


class _IndexPickler(pickle.Pickler):
    dispatch_table = ChainMap[Any, Any]({torch.Tensor: _compact}, copyreg.dispatch_table)  # noqa: RUF012
