"""The worker: receive a ticket, fetch, collate into the slot, report; until told to leave.

It talks to the trainer alone, over a channel of its own: no queue, no lock and no thread is shared with another worker.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from torch._utils import ExceptionWrapper

from antifreeze.engine.arena.board import Board, Step
from antifreeze.engine.arena.segment import Segment
from antifreeze.engine.arena.writer import Desk, SlotWriter
from antifreeze.engine.crossing import results
from antifreeze.engine.crossing.explain import explain
from antifreeze.engine.numbers import SlotNo, TicketNo, WorkerNo
from antifreeze.engine.wire.channel import Channel, ChannelClosed
from antifreeze.engine.wire.messages import Failed, Filled, Leave, Resume, Unreadable, Work
from antifreeze.engine.worker import collate
from antifreeze.engine.worker.birth import become_worker
from antifreeze.engine.worker.fetch import Fetcher
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.errors import ArenaError, InternalError, SampleFailed

# A replacement redoes at most this much work, and what was under way; a snapshot costs about a hundred microseconds.
SNAPSHOT_S = 0.05


def run_worker(channel: Channel, board: Board, recipe: Recipe, worker: WorkerNo) -> None:
    """A worker's whole life after its birth as a process."""
    workbench = Workbench(recipe, worker, board)
    try:
        for work, descriptors in orders(channel, workbench):
            if work.is_replay:
                workbench.replay(work)
                continue
            answer, made = workbench.carry_out(work, descriptors)
            channel.send_all(answer, [made.fd] if made else ())
            if made:
                made.close_descriptor()
            workbench.rest()
    except ChannelClosed:
        return


def orders(channel: Channel, workbench: Workbench) -> Iterator[tuple[Work, list[int]]]:
    """What there is to do, until the trainer says to leave: then nothing more, also of what had been ordered before."""
    waiting: deque[tuple[Work, list[int]]] = deque()
    while True:
        if waiting and not channel.has_unread:
            yield waiting.popleft()
            continue
        match channel.receive():
            case None:
                pass  # a slice has passed
            case (Work() as work, descriptors):
                waiting.append((work, descriptors))
            case (Resume(state), _):
                workbench.resume(state)
            case (Leave(), _):
                return
            case (message, _):
                raise InternalError(f"a worker cannot make sense of {message!r}")


class Workbench:
    """What a worker keeps between tickets: its fetcher, the slots it has mapped, and its board."""

    def __init__(self, recipe: Recipe, worker: WorkerNo, board: Board) -> None:
        self._board = board
        self._pulse = board.pulse
        self._snapshot_due = 0.0
        self._where = f"in DataLoader worker process {worker}"
        self._worker = worker
        self._slots: dict[SlotNo, Desk] = {}
        self._birth_error: ExceptionWrapper | None = None
        self._writer = SlotWriter(results.ResultPickler)
        try:
            collate.take_over()
            become_worker(recipe, worker)
            self._fetcher = Fetcher(recipe, self._writer.room, board.pulse)
            self._randomness = Randomness(recipe)
        except Exception:  # of worker_init_fn, to be raised in the trainer in answer to every ticket
            self._birth_error = ExceptionWrapper(where=self._where)
        self.rest()

    def resume(self, state: bytes) -> None:
        """Take over from another worker, whose generators were in this state."""
        if self._birth_error is None:
            self._randomness.restore(state)

    def replay(self, work: Work) -> None:
        """Draw what was drawn for this ticket, and nothing else."""
        if self._birth_error is not None:
            return
        self._begin(work, None)
        with contextlib.suppress(Exception):  # it was raised, or sent, at the time
            self._fetcher.fetch(work.index)
        self.rest()

    def rest(self) -> None:
        """What was to be done is done."""
        self._pulse[0] = Step.IDLE
        if self._birth_error is None:
            self._fetcher.let_go()

    def carry_out(self, work: Work, descriptors: list[int]) -> tuple[Filled | Failed, Segment | None]:
        """Make the batch; the segment is one that had to be made for it and is to be sent along."""
        given = self._slot(work, descriptors)
        if self._birth_error is not None:
            return Failed(work.ticket, _dump_error(self._birth_error)), None
        try:
            if isinstance(work.index, Unreadable):
                raise work.index.error
            self._begin(work, given)
            batch = self._fetcher.fetch(work.index)
        except ArenaError as error:
            return Failed(work.ticket, _dump_error(error)), None
        except Exception:  # of user code: to be raised in the trainer
            return Failed(work.ticket, _dump_error(ExceptionWrapper(where=self._where))), None
        return self._report(work, batch)

    def _begin(self, work: Work, given: Desk | None) -> None:
        self._keep_snapshot(work.ticket)
        self._writer.begin(given)
        pulse = self._pulse
        pulse[1], pulse[2] = work.ticket + 1, 0
        pulse[0] = Step.FETCHING

    def _keep_snapshot(self, ticket: TicketNo) -> None:
        now = time.monotonic()
        if now < self._snapshot_due:
            return
        try:
            kept = self._board.keep(ticket, self._randomness.state())
        except Exception:  # of a generator of the user's own kind: without snapshots, all is redone from the start
            kept = False
        self._snapshot_due = now + SNAPSHOT_S if kept else math.inf

    def _report(self, work: Work, batch: Any) -> tuple[Filled | Failed, Segment | None]:
        self._pulse[0] = Step.WRITING
        try:
            parcel, definition, body, made = self._writer.write(batch)
        except (ArenaError, OSError) as error:  # the machine's, not the batch's
            return Failed(work.ticket, _dump_error(error)), None
        except Exception as error:  # of a __reduce__ of the user's, or of pickle itself
            return Failed(work.ticket, _dump_error(explain(batch, "batch", error, made_by=self._worker))), None
        return Filled(work.ticket, parcel, definition, body, made.size if made else 0), made

    def _slot(self, work: Work, descriptors: list[int]) -> Desk | None:
        for slot in work.forget:
            self._slots.pop(slot, None)
        if work.slot is None:
            return None
        if descriptors:
            segment = Segment(descriptors[0], work.slot_bytes)
            segment.close_descriptor()
            self._slots[work.slot] = Desk(segment)
        return self._slots[work.slot]


def _dump_error(error: Exception | ExceptionWrapper) -> bytes:
    """An error as bytes, whatever it is made of: with its type, or else as its text alone."""
    try:
        return results.dump(error)
    except Exception:  # the type of a user's exception can be anything
        text = error.exc_msg if isinstance(error, ExceptionWrapper) else str(error)
        return results.dump(SampleFailed("a worker raised an exception that cannot be sent", why=text))
