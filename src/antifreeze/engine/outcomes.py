"""What became of a ticket, from the moment that it is known until the user has it: a batch, an error, or nothing at all.

An outcome holds all that it takes to open it, whatever becomes of its worker meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from antifreeze.engine import wording
from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.layout import Parcel
from antifreeze.engine.arena.shared import storage_of
from antifreeze.engine.arena.views import Shared, read_letter
from antifreeze.engine.backends import interruptions
from antifreeze.engine.chronicle import Chronicle, Who
from antifreeze.engine.crossing import results
from antifreeze.engine.crossing.raised import load_error
from antifreeze.engine.flow.delivery import Arrival
from antifreeze.engine.numbers import SlotNo
from antifreeze.engine.pinning import Pinned, Pinner
from antifreeze.engine.pool.happenings import Heard
from antifreeze.engine.showing import add_note, text_of
from antifreeze.engine.wire.messages import Filled
from antifreeze.errors import InternalError, SampleFailed


class Full(NamedTuple):
    """A batch that waits in a slot."""

    slot: SlotNo
    parcel: Parcel
    form: Form | None
    find: results.Find
    shared: Shared = ()


class Letter(NamedTuple):
    """A batch so small that it came in the message."""

    body: bytearray
    parcel: Parcel
    form: Form | None
    find: results.Find
    shared: Shared = ()


class Raised(NamedTuple):
    """There is no batch: the user's code raised."""

    error: bytes
    find: results.Find
    position: int
    """Of the sample that it was; -1: no sample of its own."""
    pid: int | None


class Unsent(NamedTuple):
    """A ticket that could not be sent to its worker."""

    error: Exception


class Pinning(NamedTuple):
    """A batch on its way into page-locked memory."""

    pinned: Pinned


class Here(NamedTuple):
    """A batch that was made in this process, and is to arrive as from a worker."""

    receive: Callable[[], Any]


class Made(NamedTuple):
    """A batch as the user gets it."""

    batch: Any


class Broken(NamedTuple):
    """A batch that could not be rebuilt here, or made here."""

    error: Exception
    position: int = -1
    """Of the sample that it was; -1: no sample of its own."""


class Nothing(NamedTuple):
    """There is no batch: all of its samples were left out, as the user wants it."""


class Over(NamedTuple):
    """There is no batch: the worker's part of an iterable dataset has ended."""


Outcome = Full | Letter | Here | Made | Pinning | Broken | Raised | Unsent | Nothing | Over


def opened_again(arrival: Arrival[Outcome], batch: Any, error: Exception | None) -> Arrival[Outcome]:
    """The same once more, as it was opened: a slot can be opened but once."""
    if error is not None:
        return Arrival(arrival.ticket, Broken(error))
    return arrival if isinstance(arrival.outcome, Nothing | Over) else Arrival(arrival.ticket, Made(batch))


def _map_shared(descriptors: list[int], first: int) -> Shared:
    """The memory that came with a batch; what keeps it from being mapped is raised when the batch is opened."""
    try:
        with interruptions.held():  # a signal must not cost us a descriptor between its two owners
            return [storage_of(descriptors.pop(first)) for _ in range(len(descriptors) - first)]
    except (OSError, RuntimeError) as error:
        return error


class Outcomes:
    """Makes outcomes of what workers say, and batches or errors of outcomes."""

    def __init__(self, workers: Sequence[Who], arena: Arena, chronicle: Chronicle) -> None:
        self.workers = workers
        """By their number: who makes the batches now."""
        self._arena = arena
        self._chronicle = chronicle

    def of_batch(self, filled: Filled, heard: Heard) -> Full | Letter:
        """A batch is there: in the slot that its worker was given, in memory that it made, or in the message."""
        ticket, parcel, definition, body, made_bytes = filled[:5]
        worker = heard.worker
        leased = worker.leases.pop(ticket)
        form = self._arena.form_of(worker.seat, parcel.form, definition)
        find = worker.stem.find
        shared = _map_shared(heard.descriptors, 1 if made_bytes else 0) if heard.descriptors else ()
        if body is not None:
            self._arena.pass_over(leased, worker.seat)
            return Letter(body, parcel, form, find, shared)
        if made_bytes:
            with interruptions.held():  # a signal must not cost us the descriptor between its two owners
                slot = self._arena.adopt(
                    heard.descriptors.pop(0), made_bytes, worker.seat, used_bytes=parcel.end, instead_of=leased
                )
            return Full(slot, parcel, form, find, shared)
        if leased is None:
            raise InternalError(f"ticket {ticket} was filled into a slot that it did not have")
        self._arena.fill(leased, worker.seat, used_bytes=parcel.end)
        return Full(leased, parcel, form, find, shared)

    def open(self, arrival: Arrival[Outcome]) -> tuple[Any, Exception | None]:
        """The batch, or the error to raise in its place."""
        ticket, outcome = arrival
        pid: int | None = None
        position = -1
        match outcome:
            case Letter() | Full() | Here() | Pinning() | Made():
                try:
                    return self._read(outcome), None
                except Exception as why:  # of a user's class, when it is rebuilt: this batch is lost, the next is not
                    if interruptions.is_of_a_handler(why):
                        raise
                    error, pid = why, self.workers[ticket.worker].known_pid
            case Raised(raw, find, position, pid):
                error = load_error(raw, find)
            case Broken(error, position):
                pid = self.workers[ticket.worker].known_pid
            case Unsent(error):
                pid = self.workers[ticket.worker].known_pid
            case Nothing() | Over():
                return None, None
        error = not_the_end(error)
        add_note(error, f"antifreeze: worker {ticket.worker} (pid {pid}), {wording.whereabouts(ticket, position)}")
        self._chronicle.note_raised(error, ticket, position, pid)
        return None, error

    def pin(self, outcome: Outcome, pinner: Pinner) -> Outcome:
        """Open a batch as soon as it has come, and have it copied into page-locked memory."""
        if not isinstance(outcome, Full | Letter | Here | Made):
            return outcome
        try:
            return Pinning(pinner.start(self._read(outcome, for_now=True)))
        except Exception as why:  # as in `open`, where it is told
            if interruptions.is_of_a_handler(why):
                raise
            return Broken(why)

    def _read(self, outcome: Full | Letter | Here | Made | Pinning, *, for_now: bool = False) -> Any:
        if isinstance(outcome, Letter):
            return read_letter(*outcome)
        if isinstance(outcome, Full):
            return self._arena.open(*outcome, for_now=for_now)
        if isinstance(outcome, Here):
            return outcome.receive()
        return outcome.batch if isinstance(outcome, Made) else outcome.pinned.take()

    def discard(self, outcome: Outcome) -> None:
        """Nobody wants it any more."""
        if isinstance(outcome, Full):
            self._arena.discard(outcome.slot)
        elif isinstance(outcome, Pinning):
            outcome.pinned.drop()


def not_the_end(error: Exception) -> Exception:
    """An error to raise in place of this one, if it is a StopIteration: that would end the epoch in silence."""
    if not isinstance(error, StopIteration):
        return error
    return SampleFailed("the dataset raised StopIteration for a sample", why=text_of(error), code="AF325")
