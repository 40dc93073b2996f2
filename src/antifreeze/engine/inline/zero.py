"""`num_workers=0`: the trainer makes its batches itself, with its own dataset, generators and settings.

The steps are torch's. Beside them, batches are timed, what happens is recorded in the ledger of the loader, and the policy
of the user is applied to samples that fail. With the default policy the user's code is called exactly as torch calls it,
and its exceptions pass through as they are.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from antifreeze.codes import named
from antifreeze.engine import wording
from antifreeze.engine.arena import board as boards
from antifreeze.engine.arena.board import Step
from antifreeze.engine.backends import interruptions
from antifreeze.engine.chronicle import Chronicle, Failure
from antifreeze.engine.crossing.ways import Steps
from antifreeze.engine.flow.losses import Losses
from antifreeze.engine.inline.watch import Watch
from antifreeze.engine.numbers import SeatNo, TicketNo, WorkerNo
from antifreeze.engine.orders import quarantine_for
from antifreeze.engine.outcomes import not_the_end
from antifreeze.engine.plan.seeds import ticket_seed
from antifreeze.engine.plan.ticket import NOBODY, Ticket
from antifreeze.engine.seclusion import alone
from antifreeze.engine.supervise.watchdog import Watchdog
from antifreeze.engine.times import Times
from antifreeze.engine.turns import new_turn
from antifreeze.engine.wire.messages import Mishap, Work
from antifreeze.engine.witness import Witness
from antifreeze.engine.worker.birth import reseed, ticket_state
from antifreeze.engine.worker.fetch import Batcher, Fetcher
from antifreeze.engine.worker.kinds import Saved, exchange_global
from antifreeze.engine.worker.lenient import LenientFetcher, NothingLeft
from antifreeze.engine.worker.mishaps import keep_told
from antifreeze.engine.worker.notices import Notices
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.stopwatch import Stopwatch
from antifreeze.engine.worker.stream import EndOfStream, StreamFetcher
from antifreeze.observe.accounts import Account
from antifreeze.observe.ledger import Kind
from antifreeze.observe.report import Frame
from antifreeze.options import Options


class _AsTorch(Batcher):
    """Collates with the loader's own function, into ordinary memory, and leaves its errors as they are."""

    def __init__(self, recipe: Recipe, *given: Any, **named_too: Any) -> None:
        super().__init__(recipe, *given, **named_too)
        self._collate = recipe.collate_fn

    def collate(self, samples: Any, index: Any) -> Any:
        """The batch that samples make; they are not kept."""
        return self.collate_one(samples)


class _MapFetcher(_AsTorch, Fetcher):
    """Fetches the samples of an index."""


class _ItemFetcher(_AsTorch, StreamFetcher):
    """Fetches the next items of an iterable dataset."""


class _Start:
    """Where the generators were before the batch under way, and the way back there.

    (Not a method of `ZeroWorkers`: a reference from its own fetcher back to it would keep the dataset until a collection.)
    """

    def __init__(self, randomness: Randomness) -> None:
        self.randomness = randomness
        self.seed: int | None = None
        """What the random numbers of the batch follow from; None: from what the program has drawn before."""
        self.state: bytes | None = None

    def note(self) -> None:
        """Remember where they are now."""
        try:
            self.state = self.randomness.state()
        except Exception:  # of a generator of the user's own kind
            self.state = None

    def go_back(self) -> bool:
        """Make the generators as they were; whether that could be done."""
        if self.seed is not None:
            exchange_global(ticket_state(self.seed))
            reseed(self.randomness.find(), f"{self.seed}")
        elif self.state is not None:
            self.randomness.restore(self.state)
        return self.seed is not None or self.state is not None

    @contextlib.contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Have random numbers follow from this seed; afterwards the generators are the program's again."""
        self.seed = seed
        held: dict[Steps, Saved] = {}
        with contextlib.suppress(Exception):  # of a generator of the user's own kind
            held = self.randomness.saved()
        with alone():
            of_the_program = exchange_global(ticket_state(seed))
            try:
                reseed(self.randomness.find(), f"{seed}")
                yield
            finally:
                exchange_global(of_the_program)
                self.randomness.put_back(held)


class ZeroWorkers:
    """Makes the batches of one iterator in the trainer."""

    def __init__(self, recipe: Recipe, options: Options, account: Account, *, source: Iterator[Any] | None) -> None:
        """`source`: the iterator that torch has made of an iterable dataset; None: the dataset has indices."""
        self.number = NOBODY
        self.seat = SeatNo(0)
        self.board = boards.create_private()
        self._recipe = recipe
        self._options = options
        self._account = account
        self._times = Times(account.tally)
        self._pulse = self.board.pulse
        self._stopwatch = Stopwatch(self.board)
        self._mishaps: list[Mishap] = []
        self._losses = Losses(options.policy.max_lost)
        self._failure: Failure | None = None
        self._next_number = self._is_read_up_to = 0
        self._asked = 0
        """How many items of an iterable dataset have been asked for."""
        self._began = 0
        self._is_reported = False
        """Whether there was a report about the batch under way."""
        self._stream: _ItemFetcher | None = None
        self._is_strict = options.policy.is_strict
        self._start: _Start | None = None
        """None: there is no way back, and none is needed."""
        self._turn = new_turn()
        """Held while a batch is made whose random numbers, place in a stream or losses depend on those before it."""
        self._lenient: LenientFetcher | None = None
        self.resumed: Randomness | None = None
        """Generators of a dataset that goes on where another one was: some may be made at first use."""
        self._fetch: Callable[[Any], Any]
        if source is not None:
            self._stream = self._make_stream(source)
            self._fetch = self._stream.fetch
        else:
            self._fetch = self._make_fetcher().fetch
        account.sources.add(self)

    def _make_stream(self, source: Iterator[Any]) -> _ItemFetcher:
        stream = _ItemFetcher(
            self._recipe,
            None,
            self._pulse,
            self._stopwatch,
            worker=WorkerNo(0),
            notices=Notices(self.board),
            mishaps=self._mishaps,
            is_interruption=interruptions.is_of_a_handler,
        )
        stream.read_from(source)
        return stream

    def _make_fetcher(self) -> _MapFetcher:
        fetcher = _MapFetcher(self._recipe, None, self._pulse, self._stopwatch)
        if self._is_strict and not self._recipe.by_ticket:
            return fetcher
        self._start = _Start(Randomness(self._recipe))
        if not self._is_strict:
            self._lenient = LenientFetcher(
                self._recipe,
                fetcher,
                self._start.randomness,
                rewind=self._start.go_back,
                pulse=self._pulse,
                mishaps=self._mishaps,
                is_interruption=interruptions.is_of_a_handler,
            )
        return fetcher

    # --- a batch

    def next_batch(self, next_index: Callable[[], Any]) -> Any:
        """The next batch, or what the user's code raises in its place; StopIteration at the end of the epoch."""
        if self._start is None and self._stream is None:  # threads may share the iterator, as with torch
            return self._next_batch(next_index)
        with self._turn:
            return self._next_batch(next_index)

    def _next_batch(self, next_index: Callable[[], Any]) -> Any:
        while True:
            if self._failure is not None:
                raise self._failure()
            try:
                index = next_index()
            except StopIteration:
                self._end_pass()
                raise
            number = self._next_number
            self._next_number = number + 1
            if self._stream is not None:
                index = self._next_items(index)
            try:
                batch = self._make(number, index)
            except NothingLeft:
                self._chronicle.note(Kind.BATCH_SKIPPED, "nothing is left of it", None, self._ticket(number, index))
                self._note_outcome(number, index)
                continue
            except EndOfStream:
                self._end_stream(number, index)
                raise StopIteration from None
            except StopIteration as error:
                if self._is_strict:  # as torch does it: the epoch ends
                    self._note_early_end(number, index)
                    raise
                raise self._failed(error, number, index) from error
            except Exception as error:
                self._failed(error, number, index)
                raise
            except BaseException as interruption:
                self._note_interruption(interruption, number, index)
                raise
            finally:
                self._pulse[0] = Step.IDLE
            if not self._is_strict:
                self._note_outcome(number, index)
            return batch

    def _make(self, number: int, index: Any) -> Any:
        pulse = self._pulse
        pulse[1], pulse[2] = number + 1, 0
        pulse[0] = Step.FETCHING
        self._stopwatch.begin(TicketNo(number))
        self._began = self._stopwatch.since
        if self.resumed is not None and self.resumed.awaited:
            batch = self.resumed.fetch(lambda: self._fetch_first(number, index), lambda: keep_told(self._mishaps))
        elif self._options.watch_s is None:
            batch = self._fetch(index) if self._start is None else self._fetch_from(self._start, number, index)
        else:
            batch = self._fetch_watched(self._options.watch_s, number, index)
        self._stopwatch.sent()
        return batch

    def _fetch_first(self, number: int, index: Any) -> Any:
        return self._fetch(index) if self._start is None else self._fetch_from(self._start, number, index)

    def _fetch_watched(self, after_s: float, number: int, index: Any) -> Any:
        def tell(seconds: float, frames: Sequence[Frame]) -> None:
            ticket = self._ticket(number, index)
            self._chronicle.report_own_stall(ticket, self.board.read_pulse(), seconds, frames)

        with Watch(self.board, after_s, tell) as watch:
            try:
                return self._fetch(index) if self._start is None else self._fetch_from(self._start, number, index)
            finally:
                self._is_reported = watch.has_reported

    def _next_items(self, index: Any) -> range | int:
        """The items that are meant: for iterable datasets, the sampler of torch gives None, once for each."""
        start = self._asked
        self._asked += len(index) if self._recipe.auto_collation else 1
        return range(start, self._asked) if self._recipe.auto_collation else start

    def _fetch_from(self, start: _Start, number: int, index: Any) -> Any:
        ticket = self._ticket(number, index)
        if ticket.seed is None:
            if self._options.policy.retries:  # else nothing is fetched again, and it takes long
                start.note()
            return self._fetch_once(ticket)
        with start.seeded(ticket.seed):
            return self._fetch_by_seed(ticket, start)

    def _fetch_by_seed(self, ticket: Ticket, start: _Start) -> Any:
        def begin_again() -> None:
            keep_told(self._mishaps)
            start.go_back()

        return start.randomness.fetch_seeded(lambda: self._fetch_once(ticket), begin_again)

    def _fetch_once(self, ticket: Ticket) -> Any:
        if self._lenient is None:
            return self._fetch(ticket.index)
        left_out = quarantine_for(ticket, self._account.quarantined)
        return self._lenient.fetch(Work(ticket.number, ticket.index, None, 0, (), False, ticket.seed, *left_out))

    # --- what became of it

    def _ticket(self, number: int, index: Any) -> Ticket:
        seed = ticket_seed(self._recipe.base_seed, number) if self._recipe.by_ticket else None
        return Ticket(TicketNo(number), number, NOBODY, index, seed, self._recipe.auto_collation)

    def _note_outcome(self, number: int, index: Any) -> None:
        """Record what went wrong with samples of this batch; too many lost samples are an error."""
        ticket = self._ticket(number, index)
        if self._mishaps:
            self._losses.note_lost(ticket.number, self._record_mishaps(ticket))
        if self._losses.note_delivered(ticket):
            self._fail()

    def _record_mishaps(self, ticket: Ticket) -> list[str]:
        """Record what went wrong with samples; returns what there is to say about those that are lost."""
        self._chronicle.note_mishaps(None, ticket, self._mishaps)
        lost = [f"{mishap.sample}: {mishap.exception}" for mishap in self._mishaps if mishap.is_loss]
        self._mishaps.clear()
        return lost

    def _failed(self, error: Exception, number: int, index: Any) -> Exception:
        """Record that the user is given this error in place of a batch; returns the one to raise."""
        position = self._pulse[2] - 1 if self._pulse[0] == Step.FETCHING else -1
        if not self._is_strict:
            self._note_outcome(number, index)
            error = not_the_end(error)
        with contextlib.suppress(Exception):  # an exception of the user's whose text cannot be had is still the user's
            self._chronicle.note_raised(error, self._ticket(number, index), position, None)
        return error

    def _note_interruption(self, interruption: BaseException, number: int, index: Any) -> None:
        """Say what a batch was at that took long, and was broken off, by Ctrl-C perhaps: it may never have come back."""
        seconds = (self._stopwatch.clock() - self._began) / 1e9
        if seconds >= self._options.stall_after_s and not self._is_reported:
            ticket = self._ticket(number, index)
            self._chronicle.note_interrupted(ticket, self.board.read_pulse(), seconds, interruption)

    def _note_early_end(self, number: int, index: Any) -> None:
        where = wording.whereabouts(self._ticket(number, index), self._pulse[2] - 1)
        self._chronicle.note_doubt(
            f"{named('AF325')}: the dataset raised StopIteration for {where}: with num_workers=0 the epoch ends there, "
            "as in torch, and what follows is not loaded"
        )
        self.read_times()

    def _end_pass(self) -> None:
        self.read_times()
        if not self._is_strict and self._losses.judge(at_end=True):
            self._fail()

    def _end_stream(self, number: int, index: Any) -> None:
        assert self._stream is not None
        if self._mishaps:
            self._record_mishaps(self._ticket(number, index))
        if not self._recipe.auto_collation:  # torch asks the stream again then, if the user asks the iterator
            self._stream.has_ended = False
        self._end_pass()

    def _fail(self) -> NoReturn:
        self._failure = self._losses.error
        raise self._failure()

    @property
    def has_ended(self) -> bool:
        """Whether an iterable dataset has no more items in this pass."""
        return self._stream is not None and self._stream.has_ended

    @has_ended.setter
    def has_ended(self, value: bool) -> None:
        if self._stream is not None:
            self._stream.has_ended = value

    def go_to(self, *, batch: int, item: int) -> None:
        """Go on with this batch, and this item of an iterable dataset."""
        self._next_number, self._asked = batch, item

    def read_again(self, index: Any) -> None:
        """Read the items of a batch that was delivered before, and drop them."""
        with contextlib.suppress(Exception):  # what happened then was told then
            number, self._next_number = self._next_number, self._next_number + 1
            self._make(number, self._next_items(index))
        self._mishaps.clear()

    def read_times(self) -> None:
        """Add what has been spent so far to the statistics of the loader."""
        if self._is_read_up_to != self._next_number:
            self._is_read_up_to = self._next_number
            self._stopwatch.write()
            self._times.read(self)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the program, or of an iterator that was not completed
            self.read_times()

    @functools.cached_property
    def _chronicle(self) -> Chronicle:
        options = self._options
        watchdog = Watchdog(
            stall_after_s=options.stall_after_s,
            one_blocked_s=options.one_blocked_s,
            all_blocked_s=options.all_blocked_s,
        )
        return Chronicle(self._account.ledger, watchdog, Witness(), workers=0)
