"""The bench of a worker that reads an iterable dataset: a stream instead of indices, and passes that begin and end."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

from antifreeze.engine.arena.writer import Desk
from antifreeze.engine.crossing.raised import wrap
from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.wire.messages import Begin, Work
from antifreeze.engine.worker.bench import SNAPSHOT_S, Workbench
from antifreeze.engine.worker.birth import seed_pipe
from antifreeze.engine.worker.parts import Parts
from antifreeze.engine.worker.place import rest_of
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.stream import EndOfStream, PassCounters, StreamFetcher, StreamPlace
from antifreeze.observe.say import say_once
from antifreeze.torch_side.workers import ExceptionWrapper

# A stream that can say where it is may take its time over it: so many times as long, it is not asked again.
PAUSE = 100
# So many batches are read again, at most, when a generator that is waited for has come with one of them.
MOST_AGAIN = 1000


class StreamBench(Workbench):
    """A workbench whose samples come one after the other, whatever is asked for."""

    _pass_error: ExceptionWrapper | None = None
    """What the dataset raised when it was to be read from its start; the next pass may go well."""
    _first: TicketNo | None = None
    """The first ticket of this pass, if it is not the first pass of this worker."""

    def _set_up(self, recipe: Recipe) -> None:
        self._dataset = recipe.dataset
        self._stream = self._batcher = StreamFetcher(
            recipe,
            self._room,
            self._pulse,
            self.stopwatch,
            worker=self._worker,
            notices=self.notices,
            mishaps=self._mishaps,
            is_interruption=self._is_interruption,
        )
        self._counters = PassCounters(recipe)
        self._place = StreamPlace(self._stream, self.randomness, self._counters)
        self._start: bytes | None = None
        """The place before the pass; only if a trainer may want to know."""
        self._is_short = False
        """Whether the stream has ended while it was read again, before what the training has had."""
        self._way_here: list[Callable[[], None]] = []
        """What was done since another worker's place was taken, as long as generators that it had are waited for."""
        if not recipe.is_resumed:
            self._begin_stream()

    def _begin_stream(self) -> None:
        if self._is_marked:
            self._start = self._place.at_start()
        self._try_to_begin(self._begin_reading)

    def make(self, work: Work, given: Desk | None = None) -> Any:
        """The batch of what comes next."""
        if self._birth_error is None and self._stream.is_to_begin:
            self._begin_stream()
        return super().make(work, given)

    def replay(self, work: Work) -> None:
        """Read what was read for this ticket."""
        if self._birth_error is None and self._stream.is_to_begin:
            self._begin_stream()
        super().replay(work)

    def first_mark(self) -> bytes | Parts | None:
        """Where this worker is before the first ticket of a pass, or after the last one."""
        can_tell = self._birth_error is not None or self._stream.has_ended or self._stream.keeps_state
        if can_tell:
            return self.mark()
        self._teller.forget()
        return self._start

    def _whereabouts(self) -> bytes | None:
        # Without a state of its own, a stream is read again from its start, unless there is nothing left to read.
        if self._stream.has_ended:
            return rest_of("end", *self._stream.state(), self._counters.state())
        if not self._stream.keeps_state:
            return None
        return rest_of("here" if self._stream.knows_its_place else "before", *self._stream.state())

    def _plan_snapshots(self) -> None:
        # Without a state of its own, a stream is read again from the start of its pass.
        self._snapshot_due = 0.0 if self._stream.keeps_state else math.inf

    def begin_pass(self, begin: Begin) -> None:
        """Read the stream from its start once more."""
        if self._birth_error is not self._pass_error:  # of its birth, which does not come again
            return
        self._first = begin.first
        self._keep(begin.first, self._place.at_start)
        self._try_to_begin(lambda: self._begin_from(begin.shared_seed))

    def _begin_from(self, shared_seed: int | None) -> None:
        if self._is_marked:
            self._start = self._place.at_start()
        seed_pipe(self._dataset, shared_seed)
        self._begin_reading()

    def _begin_reading(self) -> None:
        self._counters.passes += 1
        self._is_short = False
        self._stream.begin()

    def _try_to_begin(self, begin: Callable[[], None]) -> None:
        self._birth_error = self._pass_error = None
        if self.randomness.awaited:
            self._way_here.append(begin)
        try:
            begin()
        except Exception:  # of the dataset, to be raised in the trainer in answer to every ticket of this pass
            self._birth_error = self._pass_error = wrap(where=self._where)
        self._plan_snapshots()

    def leave(self) -> None:
        """The stream is let go: a generator that is left in the middle runs its `finally`."""
        if self._birth_error is self._pass_error:  # else it was not born
            self._stream.close()

    def resume(self, state: bytes) -> None:
        """Take over from another worker, which was there."""
        if self._birth_error is self._pass_error:
            self.randomness.awaited = {}
            self.randomness.note_vacancies()  # one that is made before another that is waited for is to be made again
            self._try_to_begin(lambda: self._place.restore(state))
            self._way_here = [lambda: self._place.restore(state)] if self.randomness.awaited else []

    def _fetch(self, work: Work) -> Any:
        if not self.randomness.awaited:
            return self._read(work)
        told = len(self._mishaps)
        while True:
            try:
                batch = self._read(work)
            except Exception:  # the end of the stream, or of user code, perhaps of draws that it should not have made
                if not self.randomness.have_come():
                    self._wait_on(work)
                    raise
            else:
                if not self.randomness.have_come():
                    self._wait_on(work)
                    return batch
            # Generators that another worker had were made at first use, and have drawn from their start.
            for step in self._way_here:
                step()
            del self._mishaps[told:]
            self._turn_to(work, self._given)

    def _wait_on(self, work: Work) -> None:
        """Put those generators in their places that have not been made, and wait for those that have no place yet.

        What holds these is made at first use, perhaps in another pass: all that is read until then is read again.
        """
        self.randomness.put_where_there_is_room()
        if self.randomness.awaited and len(self._way_here) < MOST_AGAIN:
            self._way_here.append(lambda: self._read_again(work))
            return
        if self.randomness.awaited:
            say_once(
                f"worker {self._worker} took over from another, whose dataset had made generators that this one has not "
                f"made in {MOST_AGAIN} batches: where it does, they begin anew"
            )
        self.randomness.awaited = {}
        self._way_here.clear()

    def _read_again(self, work: Work) -> None:
        with contextlib.suppress(Exception):  # it was raised, or sent, at the time
            self._stream.fetch(work.index)

    def _read(self, work: Work) -> Any:
        had_ended = self._stream.has_ended
        try:
            return self._stream.fetch(work.index)
        except EndOfStream:
            is_empty = work.ticket == self._first
            # Nobody may want more of this pass: then what was read again had not been delivered, either.
            self._is_short |= work.is_replay and not had_ended and not is_empty
            if self._is_short and not work.is_replay:
                say_once(
                    f"worker {self._worker} reads again what the training has had, and the stream ends before that: its "
                    "state_dict() and load_state_dict() do not lead back to where it was, or its data are fewer now. "
                    "Batches of this epoch are missing."
                )
            # Whoever takes over need not read it again to find that out. But a place before the first ticket is that before
            # the pass, which whoever takes over begins: from the end of this pass, that would be the one after it.
            if not is_empty:
                self._keep(work.ticket, self._place.at_end)
            raise

    def _keep(self, ticket: TicketNo, place: Callable[[], bytes]) -> None:
        with contextlib.suppress(Exception):  # of a generator of the user's own kind: then all is read again
            self._keep_if_whole(ticket, place())

    def _keep_if_whole(self, ticket: TicketNo, place: bytes) -> None:
        if self.randomness.is_whole:
            self._board.keep(ticket, place)

    def _keep_snapshot(self, ticket: TicketNo) -> None:
        if not self._stream.knows_its_place:
            return
        began_s = time.thread_time()  # not by the clock: on a busy machine, a quick answer can take long
        try:
            self._keep_if_whole(ticket, self._place.state())
        except Exception:  # of the dataset's state_dict, or of a generator
            self._snapshot_due = math.inf
        else:
            self._snapshot_due = time.monotonic() + max(SNAPSHOT_S, PAUSE * (time.thread_time() - began_s))

    def _find_out_why_none(self, work: Work, position: int, error: Exception) -> None:
        """What is gone from a stream cannot be fetched once more."""
