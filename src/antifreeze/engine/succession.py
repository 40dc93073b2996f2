"""Another worker takes over from one that is lost or stuck: from the last snapshot of its generators, by replay.

The successor draws what the first one drew, so that its batches are bit for bit the same (decision 8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from antifreeze.engine import wording
from antifreeze.engine.arena.board import Snapshot, Step
from antifreeze.engine.chronicle import NO_SNAPSHOT, Chronicle
from antifreeze.engine.flow.delivery import Delivery
from antifreeze.engine.flow.history import Pass, Question
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.orders import Orders
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.pool.worker import Worker
from antifreeze.errors import InternalError


class Estate(NamedTuple):
    """What a worker leaves to whoever does the rest of its work."""

    state: bytes | None
    """Of its generators, and its stream, when it was last kept; None: they begin anew."""
    told: tuple[Ticket | Pass, ...]
    """All that it was told since then."""


class Succession:
    """Knows what workers have left undone, and where another one has to begin."""

    def __init__(
        self,
        orders: Orders,
        delivery: Delivery[Any],
        chronicle: Chronicle,
        *,
        is_stream: bool = False,
        replays: bool | None = None,
    ) -> None:
        self._orders = orders
        self._delivery = delivery
        self._chronicle = chronicle
        self._is_stream = is_stream
        self._replays = replays
        self._snapshots: dict[WorkerNo, Snapshot] = {}
        """Of workers that are gone: what the next of their number began with."""
        self.first_items: dict[WorkerNo, int] = {}
        """Of workers that are gone: what their stream began with in this pass."""
        self._first_ticket = TicketNo(0)

    def begin_pass(self, first: TicketNo) -> None:
        """Tickets from this one on belong to another pass."""
        self._first_ticket = first
        self.first_items.clear()

    @property
    def can_be_read_again(self) -> bool:
        """Whether what workers have read can be had once more: always, but of a stream that is consumed."""
        return self._replays is not False or not self._is_stream

    def note_origin(self, number: WorkerNo, origin: Snapshot) -> None:
        """A worker has begun in the middle of a pass, and so will whoever takes over before it has a snapshot."""
        self._snapshots[number] = origin

    def obstacle(self, worker: Worker) -> str | None:
        """Why nobody can take over from this worker, which has ended; None: somebody can."""
        stem = worker.stem
        if worker.board.read_pulse().step is Step.STARTING:
            return None
        if self._replays is False and (self._is_stream or stem.holds_queue or stem.holds_pipe):
            what = "the stream that it read" if self._is_stream else "what it has fetched"
            return f"{what} cannot be read again: replay=False"
        if self._replays is None and stem.holds_pipe:
            return (
                "the dataset holds a pipe or a socket from before the workers, and an answer that the worker left unread "
                "would be taken for the next one's. replay=True, or ANTIFREEZE_REPLAY=1, has another worker take over all "
                "the same"
            )
        if self._is_stream and not self._orders.history.is_whole(worker.number):
            return (
                "its stream was read too far to be read again from the start, and cannot say where it is (state_dict)"
            )
        return None

    def hand_over(self, worker: Worker, successor: Callable[[], Worker], undone: Sequence[Ticket]) -> None:
        """Give another worker what this one was given, from where its generators were."""
        if undone and undone[0].seed is not None:
            self._orders.redo_by_seed(successor(), undone)
            return
        number, history = worker.number, self._orders.history
        snapshot = self._snapshot_of(worker)
        if snapshot is not None:
            if _is_past(snapshot, worker, undone):  # that one would be waited for without end
                raise InternalError(f"{worker!r} has begun a ticket after one that it has not done")
            self._snapshots[number] = snapshot
            history.forget_before(number, snapshot.ticket)
        again = len(history.of(number)) - len(undone)
        state = snapshot.state if snapshot is not None else None
        if self._is_stream:
            self._note_first_items(worker)
            if again > 0:
                self._chronicle.note_read_again(worker, again=again)
        elif not history.is_whole(number):
            state = None
            self._chronicle.note_no_snapshot(worker, again=None)
        elif snapshot is None and again > 0:
            self._chronicle.note_no_snapshot(worker, again=again)
        self._orders.redo(successor(), undone={ticket.number for ticket in undone}, state=state)

    def estate_of(self, worker: Worker) -> Estate | None:
        """What this worker, which has ended, leaves behind; None: its stream cannot be found again.

        If it has done what we have not heard of, an older state serves.
        """
        number, history = worker.number, self._orders.history
        told = tuple(each for each in history.of(number) if not isinstance(each, Question))
        first = min((ticket.number for ticket in self.undone(number)), default=None)
        kept = [*worker.board.snapshots(), *filter(None, [self._snapshots.get(number)])]
        for snapshot in kept:
            since = tuple(each for each in told if each.number >= snapshot.ticket)
            is_early = first is None or snapshot.ticket <= first
            if is_early and (snapshot is kept[0] or (since and since[0].number == snapshot.ticket)):
                return Estate(snapshot.state, since)
        if not kept and history.is_whole(number):
            return Estate(None, told)
        if self._is_stream:
            return None
        why = "it had done more than has arrived" if kept else NO_SNAPSHOT
        self._chronicle.note_no_snapshot(worker, again=None, why=why)
        return Estate(None, ())

    def has_just_answered(self, worker: Worker) -> bool:
        """Whether it has got on since we last listened: then its answer is on its way, and nobody is to take over."""
        snapshot = self._snapshot_of(worker)
        return snapshot is not None and _is_past(snapshot, worker, self.undone(worker.number))

    def undone(self, number: WorkerNo) -> list[Ticket]:
        """What a worker of this number has been given, or will be, and has not answered."""
        return [ticket for ticket in self._delivery.outstanding() if ticket.worker == number]

    def ticket_of(self, worker: Worker) -> Ticket | None:
        """The ticket that a worker is at, if it has not been done before."""
        return wording.ticket_at(worker.board.read_pulse(), self.undone(worker.number))

    def _note_first_items(self, worker: Worker) -> None:
        ticket, first = worker.board.read_pulse().ticket, worker.board.read_notices().first_items
        if first and ticket is not None and ticket >= self._first_ticket:  # else it is that of an earlier pass
            self.first_items.setdefault(worker.number, first)

    def _snapshot_of(self, worker: Worker) -> Snapshot | None:
        return worker.board.latest() or self._snapshots.get(worker.number)


def _is_past(snapshot: Snapshot, worker: Worker, undone: Sequence[Ticket]) -> bool:
    """Whether a worker has done, at the time of this snapshot, what we have not heard of yet."""
    return any(ticket.number < snapshot.ticket for ticket in undone if ticket.number in worker.leases)
