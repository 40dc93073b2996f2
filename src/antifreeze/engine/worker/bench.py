"""The bench where batches are made: indices in, a batch in its slot out, or what went wrong."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from typing import Any

from antifreeze.engine.arena.board import Board, Step
from antifreeze.engine.arena.segment import Segment, try_to_create
from antifreeze.engine.arena.writer import Desk, SlotWriter
from antifreeze.engine.crossing import results
from antifreeze.engine.crossing.explain import explain_batch
from antifreeze.engine.crossing.raised import wrap
from antifreeze.engine.numbers import SlotNo, TicketNo, WorkerNo
from antifreeze.engine.showing import add_note
from antifreeze.engine.wire.messages import Begin, Emptied, Ended, Failed, Filled, Mishap, Unreadable, Work, load_index
from antifreeze.engine.worker import collate
from antifreeze.engine.worker.birth import become_worker, play_worker, reseed
from antifreeze.engine.worker.fetch import Batcher, Fetcher
from antifreeze.engine.worker.lenient import (
    NOT_REWOUND,
    IsInterruption,
    LenientFetcher,
    NothingLeft,
    never,
    none_returned,
)
from antifreeze.engine.worker.mishaps import describe, keep_told
from antifreeze.engine.worker.notices import Notices
from antifreeze.engine.worker.parts import Parts, Teller
from antifreeze.engine.worker.place import MapPlace, Place, Position, load_place, to_try_out
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.renewal import Heritage, Renewal
from antifreeze.engine.worker.retrace import retrace
from antifreeze.engine.worker.rewind import Rewinder
from antifreeze.engine.worker.stopwatch import Stopwatch
from antifreeze.engine.worker.stream import EndOfStream
from antifreeze.errors import ArenaError, InternalError, SampleFailed
from antifreeze.torch_side.workers import ExceptionWrapper

# A replacement redoes at most this much work, and what was under way; a snapshot costs about a hundred microseconds.
SNAPSHOT_S = 0.05
# One that takes so many times as long, because the dataset holds thousands of objects, is made that much more rarely.
LONG_S = 0.001
# A worker that takes longer to say where it is says so only when it has done this many times as much other work.
QUICK_S, PAUSE = 0.001, 50
# By its third ticket a worker has drawn from what it draws from for every sample.
LOOKS_AFTER = 3
# A worker that finds no memory for a slot looks again after so long.
LOOK_AGAIN_S = 0.05


class NotMade(Exception):
    """There is no batch: user code raised, and that is what it is the context of."""

    def __init__(self, wrapper: ExceptionWrapper, position: int) -> None:
        super().__init__(position)
        self.wrapper = wrapper
        """What it raised, as torch sends it."""
        self.position = position
        """Of the sample that raised; -1: it was none of them, or nobody knows which."""


class Workbench:
    """What a worker keeps between tickets: its fetcher, the slots it has mapped, and its board."""

    def __init__(self, recipe: Recipe, worker: WorkerNo, board: Board, heritage: Heritage | None) -> None:
        """Without a heritage it stands in the trainer, whose settings are not for a worker to change."""
        self._board = board
        self._pulse = board.pulse
        self._snapshot_due = self._mark_due = 0.0
        self._where = f"in DataLoader worker process {worker}"
        self._worker = worker
        self._slots: dict[SlotNo, Desk] = {}
        self._given: Desk | None = None
        self._shared: tuple[int, ...] = ()
        """Descriptors of memory in the last batch that was shared on purpose."""
        self._mishaps: list[Mishap] = []
        self._lenient: LenientFetcher | None = None
        self._batcher: Batcher
        self._birth_error: ExceptionWrapper | None = None
        self._writer = SlotWriter(results.ResultPickler, self._create_slot)
        self.stopwatch = Stopwatch(board)
        self.notices = Notices(board)
        self._renewal = Renewal(recipe, heritage) if heritage else None
        self._room = self._writer.room if heritage else None
        self._is_marked = recipe.is_marked
        self._is_batched = recipe.auto_collation
        self.is_interruption: IsInterruption = never
        """Tells what a signal handler of the program has raised, where this process is the trainer."""
        self._at: Position = "start"
        self._taken_over: Place | None = None
        """Where another worker was, until the first ticket of this one."""
        self._at_birth = b""
        """Of a worker that takes over: its generators as they were before."""
        self._tried: bytes | None = None
        """What whoever takes over from this one is to try out."""
        self._looks_after = 0
        """After so many tickets it is looked whether generators that the dataset holds have been drawn from."""
        try:
            collate.take_over()
            self.randomness = Randomness(recipe)
            if "rng" in recipe.fixes:
                reseed(self.randomness.find(), f"{recipe.base_seed} {worker}")
            inherited = self.randomness.held_states()
            if heritage:
                become_worker(recipe, worker, self.notices)
            else:
                play_worker(recipe, worker)
            self._unseeded = [each for each in inherited if not each.has_changed()]  # others were given seeds here
            self._looks_after = LOOKS_AFTER if self._unseeded else 0
            self._teller = Teller(self.randomness)
            self._rewinder = Rewinder(self.randomness, self._redo)
            self._set_up(recipe)
        except Exception:  # of worker_init_fn, to be raised in the trainer in answer to every ticket
            self._birth_error = wrap(where=self._where)
        self.rest()

    def _set_up(self, recipe: Recipe) -> None:
        self._map_place = MapPlace(recipe.dataset if recipe.is_marked else None, self.randomness)
        self._fetcher = self._batcher = Fetcher(recipe, self._room, self._pulse, self.stopwatch)
        if not recipe.policy.is_strict:
            self._lenient = LenientFetcher(
                recipe,
                self._fetcher,
                self.randomness,
                rewind=self._rewind,
                pulse=self._pulse,
                mishaps=self._mishaps,
                is_interruption=self._is_interruption,
            )

    def _is_interruption(self, error: Exception) -> bool:
        return self.is_interruption(error)  # which may be exchanged once the bench is there

    def begin_pass(self, begin: Begin) -> None:
        """Only streams have to be told."""
        raise InternalError(f"{begin!r}, and the dataset is not iterable")

    def resume(self, state: bytes) -> None:
        """Take over from another worker, whose generators were in this state."""
        if self._birth_error is not None:
            return
        place = load_place(state)
        if place.position != "start":
            self._at_birth = self.randomness.state()
            self.randomness.note_vacancies()
            self._taken_over, self._tried, self._at = place, place.tried, "here"
        self._map_place.restore(place)

    def _settle_in(self, work: Work, place: Place) -> None:
        """Fetch first samples for nothing: what user code does only once in a worker has been done then.

        It may seed generators, or put others in their places, which must not happen after they were given their state. The
        samples are those that the first worker began with, and are drawn as it drew them: what user code keeps of them is
        what that one kept, and none is fetched twice that is to be delivered.
        """
        self._turn_to(work, None)
        with contextlib.suppress(Exception):  # of user code: if it comes again, it is told
            self.randomness.restore(self._at_birth)
            self._fetcher.try_out(self._to_try_out(work, place), patience_s=SNAPSHOT_S)
        self._map_place.restore(place)
        self._taken_over = None  # not before: it may be interrupted

    def _to_try_out(self, work: Work, place: Place) -> list[Any]:
        tried = place.tried
        if tried is None:
            tried = to_try_out(work.index, batched=self._is_batched, leave_out=work.leave_out)
        return [i for i in (load_index(tried) if tried else ()) if not work.quarantined or i not in work.quarantined]

    def mark(self) -> bytes | Parts | None:
        """Where this worker is now, if it can tell: what has changed since it last said so."""
        try:
            if self._birth_error is not None:
                self._birth_error.reraise()
            place = self._whereabouts()
            return None if place is None else self._teller.tell(place)
        except Exception as error:  # of the dataset's state_dict: to be raised when somebody asks for it
            self._teller.forget()
            return Place("unknown", of_dataset=f"{type(error).__qualname__}: {error}").dump()

    def mark_if_quick(self) -> bytes | Parts | None:
        """The same; None if it takes long, and the last time was not long ago: what was done since is done again then."""
        if time.monotonic() < self._mark_due:
            return None
        began_s = time.thread_time()
        mark = self.mark()
        took_s = time.thread_time() - began_s
        self._mark_due = time.monotonic() + PAUSE * took_s if took_s > QUICK_S else 0.0
        return mark

    def first_mark(self) -> bytes | Parts | None:
        """Where this worker is before the first ticket of a pass."""
        return self.mark()

    def _whereabouts(self) -> bytes | None:
        """The place but for generators."""
        return self._map_place.rest(self._at)

    def replay(self, work: Work) -> None:
        """Draw what was drawn for this ticket, and nothing else."""
        if self._birth_error is not None or isinstance(work.index, Unreadable):
            return
        self._begin(work, None)
        with contextlib.suppress(Exception):  # it was raised, or sent, at the time
            self._fetch(work)
        self._mishaps.clear()  # they were told at the time
        self.rest()

    def break_off(self) -> None:
        """The ticket under way was interrupted, and is to be begun anew: there is no way back to what was before it."""
        self._snapshot_due = 0.0

    def leave(self) -> None:
        """Nothing more is made here, and what is half done is let go."""

    def rest(self) -> None:
        """What was to be done is done."""
        self._pulse[0] = Step.IDLE
        if self._birth_error is None:
            self._batcher.let_go()

    def carry_out(self, work: Work, descriptors: list[int]) -> tuple[Filled | Failed | Emptied | Ended, Segment | None]:
        """Make the batch; the segment is one that had to be made for it and is to be sent along."""
        given = self.accept(work, descriptors)
        try:
            batch = self.make(work, given)
        except EndOfStream:
            return Ended(work.ticket, self.take_mishaps()), None
        except NothingLeft:
            return Emptied(work.ticket, self.take_mishaps()), None
        except ArenaError as error:
            return self._failed(work, error), None
        except NotMade as failure:
            return self._failed(work, failure.wrapper, failure.position), None
        return self._report(work, batch)

    def take_shared(self) -> tuple[int, ...]:
        """Descriptors to be sent along with the batch, and then closed."""
        shared, self._shared = self._shared, ()
        return shared

    def make(self, work: Work, given: Desk | None = None) -> Any:
        """The batch, collated into this slot if there is one; raises NotMade, NothingLeft or EndOfStream."""
        if self._birth_error is not None:
            raise NotMade(self._birth_error, -1)
        try:
            if isinstance(work.index, Unreadable):
                raise work.index.error
            self._begin(work, given)
            return self._fetch(work)
        except (EndOfStream, NothingLeft, ArenaError):
            raise
        except Exception as error:  # of user code: to be raised in the trainer
            position = self._position()
            if self._pulse[0] == Step.COLLATING and self._batcher.missing is not None:
                position = self._batcher.missing
                self._find_out_why_none(work, position, error)
            raise NotMade(wrap(where=self._where), position) from error

    def _fetch(self, work: Work) -> Any:
        if not self.randomness.awaited:
            return self._fetch_once(work)

        def begin_again() -> None:
            keep_told(self._mishaps)
            self._turn_to(work, self._given)

        return self.randomness.fetch(lambda: self._fetch_once(work), begin_again)

    def _fetch_once(self, work: Work) -> Any:
        if self._lenient is not None:
            return self._lenient.fetch(work)
        try:
            return self._fetcher.fetch(work.index)
        except StopIteration as error:
            if self._pulse[0] != Step.FETCHING:  # of the collate function
                raise
            mishap = describe("redone", self._position(), self._index_at(work, self._position()), 1, error)
        remark = "" if self._rewind() else NOT_REWOUND
        self._mishaps.append(mishap._replace(remark=remark))
        return self._fetcher.fetch(work.index)

    def _begin(self, work: Work, given: Desk | None) -> None:
        if self._taken_over is not None:
            self._settle_in(work, self._taken_over)
        if time.monotonic() >= self._snapshot_due:
            self._keep_snapshot(work.ticket)
        if self._looks_after:
            self._look_at_generators()
        if self._at == "start":
            self._tried = to_try_out(work.index, batched=self._is_batched, leave_out=work.leave_out)
        self._at = "here"
        self._rewinder.note(work)
        self._work, self._given = work, given
        self._turn_to(work, given)
        self.stopwatch.begin(work.ticket)

    def _look_at_generators(self) -> None:
        self._looks_after -= 1
        drawn = [] if self._looks_after else [each for each in self._unseeded if each.has_changed()]
        if drawn:
            self.notices.note_drawn([each.now() for each in drawn], drawn[0].holder)

    def _turn_to(self, work: Work, given: Desk | None) -> None:
        self._writer.begin(given)
        pulse = self._pulse
        pulse[1], pulse[2] = work.ticket + 1, 0
        pulse[0] = Step.FETCHING

    def _keep_snapshot(self, ticket: TicketNo) -> None:
        began_s = time.thread_time()  # not by the clock: on a busy machine, a quick answer can take long
        try:
            state = self.randomness.state()
            place = self._map_place.with_generators(self._at, state, self._tried)
        except Exception:  # of a generator of the user's own kind: without snapshots, all is redone from the start
            self._rewinder.mark(None)
            self._snapshot_due = math.inf
            return
        pause_s = SNAPSHOT_S * max(1.0, (time.thread_time() - began_s) / LONG_S)
        # Another one before the second ticket: nobody is to go back beyond what user code does once, at its first sample.
        self._snapshot_due = 0.0 if self._at == "start" else time.monotonic() + pause_s
        self._rewinder.mark(state)
        # Without snapshots, all is redone from the start.
        if self.randomness.is_whole and self._board.keep(ticket, place) and self._renewal is not None:
            self._renewal.raise_if_due(samples=self.stopwatch.samples)

    def _rewind(self) -> bool:
        """Bring the generators back to where they were before the ticket under way; whether that could be done."""
        could = self._rewinder.rewind()
        self._turn_to(self._work, self._given)
        return could

    def _redo(self, work: Work) -> None:
        """On the way back, for the generators' sake."""
        self._turn_to(work, None)
        with contextlib.suppress(Exception):  # it was raised, or sent, at the time
            if self._lenient is not None:
                self._lenient.replay(work)
            else:
                self._fetcher.fetch(work.index)

    def _find_out_why_none(self, work: Work, position: int, error: Exception) -> None:
        """Fetch a sample that was None once more; what the dataset swallowed becomes a note."""
        index = self._index_at(work, position)
        remark = ""
        try:
            after = self.randomness.state()
            if self._rewind():
                try:
                    self._fetcher.fetch_up_to(position, work.index)
                    remark = retrace(lambda: self._fetcher.fetch_one(index))
                finally:
                    self.randomness.restore(after)
        except Exception:  # of samples before it, or of generators: then the note is the shorter one
            remark = ""
        if remark:
            add_note(error, remark)
        self._mishaps.append(describe("none", position, index, 1, none_returned(), remark))

    def _position(self) -> int:
        return self._pulse[2] - 1 if self._pulse[0] == Step.FETCHING else -1

    def _index_at(self, work: Work, position: int) -> Any:
        return next(itertools.islice(work.index, position, None)) if position >= 0 else work.index

    def _report(self, work: Work, batch: Any) -> tuple[Filled | Failed, Segment | None]:
        self._pulse[0] = Step.WRITING
        try:
            parcel, definition, body, made, self._shared = self._writer.write(batch)
        except (ArenaError, OSError, MemoryError) as error:  # the machine's, not the batch's
            return self._failed(work, error), None
        except Exception as error:  # of a __reduce__ of the user's, or of pickle itself
            return self._failed(work, explain_batch(batch, error, worker=self._worker)), None
        made_bytes = made.size if made else 0
        if self._mishaps:
            return Filled(work.ticket, parcel, definition, body, made_bytes, self.take_mishaps()), made
        return Filled(work.ticket, parcel, definition, body, made_bytes), made

    def _create_slot(self, size: int) -> Segment:
        """Memory for a slot; where there is none at the moment, the worker waits, and says so on its board.

        It waits for as long as the trainer lets it: the trainer gives back what is free, and knows how long is too long.
        """
        made = try_to_create(size)
        if isinstance(made, Segment):
            return made
        before, self._pulse[0] = self._pulse[0], Step.WAITING
        while not isinstance(made, Segment):
            time.sleep(LOOK_AGAIN_S)
            made = try_to_create(size)
        self._pulse[0] = before
        return made

    def _failed(self, work: Work, error: Exception | ExceptionWrapper, position: int = -1) -> Failed:
        return Failed(work.ticket, _dump_error(error), position, self.take_mishaps())

    def take_mishaps(self) -> tuple[Mishap, ...]:
        """What has gone wrong since they were last taken."""
        mishaps = tuple(self._mishaps)
        self._mishaps.clear()
        return mishaps

    def accept(self, work: Work, descriptors: list[int]) -> Desk | None:
        """The slot that comes with a ticket, if one does; to be called for every ticket, also one that is withdrawn."""
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
