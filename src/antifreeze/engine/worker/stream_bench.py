"""The bench of a worker that reads an iterable dataset: a stream instead of indices, and passes that begin and end."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any, Literal

from antifreeze.engine.crossing.raised import wrap
from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.wire.messages import Begin, Work
from antifreeze.engine.worker.bench import SNAPSHOT_S, Workbench
from antifreeze.engine.worker.birth import seed_pipe
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.stream import EndOfStream, StreamFetcher, StreamPlace

# A stream that can say where it is may take its time over it: so many times as long, it is not asked again.
PAUSE = 100


class StreamBench(Workbench):
    """A workbench whose samples come one after the other, whatever is asked for."""

    def _set_up(self, recipe: Recipe) -> None:
        self._dataset = recipe.dataset
        self._stream = self._batcher = StreamFetcher(
            recipe,
            self._writer.room,
            self._pulse,
            self.stopwatch,
            worker=self._worker,
            notices=self._notices,
            mishaps=self._mishaps,
        )
        self._place = StreamPlace(self._stream, self._randomness)
        self._plan_snapshots()

    def _plan_snapshots(self) -> None:
        # Without a state of its own, a stream is read again from the start of its pass.
        self._snapshot_due = 0.0 if self._stream.keeps_state else math.inf

    def begin_pass(self, begin: Begin) -> None:
        """Read the stream from its start once more."""
        if self._birth_error is not None:
            return
        self._keep(begin.first, "start")
        try:
            seed_pipe(self._dataset, begin.shared_seed)
            self._stream.begin()
        except Exception:  # of the dataset, to be raised in the trainer in answer to every ticket
            self._birth_error = wrap(where=self._where)
        self._plan_snapshots()

    def resume(self, state: bytes) -> None:
        """Take over from another worker, which was there."""
        if self._birth_error is None:
            self._place.restore(state)

    def _fetch(self, work: Work) -> Any:
        try:
            return self._stream.fetch(work.index)
        except EndOfStream:
            self._keep(work.ticket, "end")  # whoever takes over need not read it again to find that out
            raise

    def _keep(self, ticket: TicketNo, position: Literal["start", "end"]) -> None:
        with contextlib.suppress(Exception):  # of a generator of the user's own kind: then all is read again
            self._board.keep(ticket, self._place.at(position))

    def _keep_snapshot(self, ticket: TicketNo) -> None:
        began = time.monotonic()
        try:
            self._board.keep(ticket, self._place.state())
        except Exception:  # of the dataset's state_dict, or of a generator
            self._snapshot_due = math.inf
        else:
            ended = time.monotonic()
            self._snapshot_due = ended + max(SNAPSHOT_S, PAUSE * (ended - began))

    def _find_out_why_none(self, work: Work, position: int, error: Exception) -> None:
        """What is gone from a stream cannot be fetched once more."""
