"""An iterable dataset → samples → batch: torch's own steps, and a way back into the stream for those who come later.

A stream has no index to go back to. A worker that takes over from another one reads it again from where the pass began,
and throws away what was delivered; or, if the dataset or its iterator has a `state_dict`, from the last state that was
kept.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import Dataset

from antifreeze.codes import named
from antifreeze.engine.crossing.reading import ancestors, attributes_of, is_a, namespace_of
from antifreeze.engine.crossing.state import outline
from antifreeze.engine.crossing.ways import Steps, replace
from antifreeze.engine.flow.mishap import wait_before_next
from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.showing import add_note
from antifreeze.engine.wire.messages import Mishap
from antifreeze.engine.worker import collate
from antifreeze.engine.worker.fetch import Batcher
from antifreeze.engine.worker.lenient import IsInterruption, NothingLeft, never, none_returned, wait_for
from antifreeze.engine.worker.mishaps import describe
from antifreeze.engine.worker.notices import Notices, Share
from antifreeze.engine.worker.place import Place, has_state, load_place, state_of
from antifreeze.engine.worker.randomness import Randomness, holder_of, search
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.stopwatch import Stopwatch
from antifreeze.observe.say import say_once

NOT_REWOUND = "random generators are where the failure left them"


class EndOfStream(Exception):
    """The dataset has nothing more for this worker."""


class StreamFetcher(Batcher):
    """Makes batches of what comes next."""

    def __init__(
        self,
        recipe: Recipe,
        room: collate.Room | None,
        pulse: memoryview,
        stopwatch: Stopwatch,
        *,
        worker: WorkerNo,
        notices: Notices,
        mishaps: list[Mishap],
        is_interruption: IsInterruption = never,
    ) -> None:
        """`is_interruption`: tells exceptions that a signal handler of the program raised from those of the stream."""
        super().__init__(recipe, room, pulse, stopwatch)
        self._is_interruption = is_interruption
        self._drops_last = recipe.drop_last and recipe.auto_collation
        self._first = int(recipe.auto_collation)
        """Position of the first item of a batch, in the pulse; an item that is no part of a batch has none."""
        self._notices = notices
        self._worker = worker
        self._workers = recipe.num_workers
        self._is_shared_out = (
            "shard" in recipe.fixes and recipe.shared_seed is None
        )  # torch shares data pipes out itself
        self._policy = recipe.policy
        self._take = self._take_strictly if recipe.policy.is_strict else self._take_leniently
        self._mishaps = mishaps
        self._skipped: Exception | None = None
        """What was raised instead of the last item, and was let pass."""
        self._source: Any = None
        self._share: Any = None
        self._items: Any = None
        self._has_begun = self._has_ended = False
        self.begin_again: Callable[[], None] | None = None
        """What is done if nothing at all comes of a stream that was told where to begin."""

    def begin(self) -> None:
        """A pass over the stream begins."""
        self._skipped = None
        self._has_begun = self._has_ended = False
        self.begin_again = None
        self._notices.begin_stream()
        self.read_from(iter(self._dataset))

    def read_from(self, source: Iterator[Any]) -> None:
        """Take items from this iterator of the dataset."""
        self._source = source
        self._share = Share(self._source, self._notices, worker=self._worker, workers=self._workers)
        self._items = self._share if self._is_shared_out else self._source

    def close(self) -> None:
        """Keep no iterator of the dataset."""
        self._source = self._share = self._items = None

    @property
    def keeps_state(self) -> bool:
        """Whether the stream can be told where to go on."""
        return has_state(self._dataset) or has_state(self._source)

    @property
    def is_to_begin(self) -> bool:
        """Whether nobody has said yet where it is to be read from."""
        return self._source is None and not self._has_ended

    @property
    def knows_its_place(self) -> bool:
        """Whether it can be asked now: before its first item, a dataset may still say where it was in another pass."""
        return self._has_begun

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come in this pass."""
        return self._has_ended

    @has_ended.setter
    def has_ended(self, value: bool) -> None:
        self._has_ended = value

    def state(self) -> tuple[Any, Any, int]:
        """Where the stream is: what the dataset says of itself, what its iterator does, and how far it was shared out."""
        of_dataset = None if self._source is self._dataset else state_of(self._dataset)
        return of_dataset, state_of(self._source), self._share.number

    def end(self, of_dataset: Any, of_iterator: Any) -> None:
        """Nothing more will come in this pass; the next one may go by what the dataset says of itself."""
        if of_dataset is not None:
            self._dataset.load_state_dict(of_dataset)
        elif of_iterator is not None and self._source is None:
            self.begin()  # a dataset that is its own iterator may know nothing of itself before
        if of_iterator is not None and self._source is self._dataset:
            self._source.load_state_dict(of_iterator)
        self._has_ended = True

    def go_to(self, of_dataset: Any, of_iterator: Any, shared_out: int) -> None:
        """Go on from where another worker's stream was."""
        if of_dataset is not None:
            self._dataset.load_state_dict(of_dataset)
        self.begin()
        self._notices.items_wanted = 0  # its first items are another worker's
        if of_iterator is not None:
            self._source.load_state_dict(of_iterator)
        self._share.number = shared_out

    def fetch(self, index: range | int) -> Any:
        """The next batch; EndOfStream if there is none. Whatever user code raises passes through."""
        if self._has_ended:
            raise EndOfStream
        self._has_begun = True
        begin_again, self.begin_again = self.begin_again, None
        samples = self._take(index if isinstance(index, range) else (index,))
        if not samples and self.has_ended and begin_again is not None:
            begin_again()
            samples = self._take(index if isinstance(index, range) else (index,))
        if (not samples or self._drops_last) and self._has_ended:
            raise EndOfStream
        if not samples:
            raise NothingLeft
        self.stopwatch.fetched(len(samples), whole=index)
        if self._notices.items_wanted:
            self._notices.note_items(samples)
        return self.collate(samples, index) if self._batched else self.collate_one(samples[0])

    def _take_strictly(self, asked: Sequence[int]) -> list[Any]:
        samples, items, pulse = [], self._items, self._pulse
        for position in range(self._first, self._first + len(asked)):
            pulse[2] = position
            try:
                samples.append(next(items))
            except StopIteration:
                self._has_ended = True
                break
        return samples

    def _take_leniently(self, asked: Sequence[int]) -> list[Any]:
        samples: list[Any] = []
        for position, number in enumerate(asked, self._first - 1):
            self._pulse[2] = position + 1
            try:
                samples += self._take_one(position, number)
            except StopIteration:
                self._end()
                break
        return samples

    def _take_one(self, position: int, number: int) -> list[Any]:
        """The next item, or nothing if it is left out."""
        attempt = 0
        while True:
            attempt += 1
            try:
                sample = next(self._items)
            except StopIteration:
                raise
            except Exception as error:  # of the user's iterator: the policy says what becomes of it
                if self._is_interruption(error):
                    raise
                if isinstance(self._source, types.GeneratorType):
                    add_note(
                        error,
                        "antifreeze: a generator ends with the exception that it raises, and what comes after it in the "
                        "stream cannot be had: on_error= does not apply. Catch it inside the generator.",
                    )
                    raise
                failure = error
            else:
                if sample is not None or not self.refuses_none or self._policy.then == "raise":
                    self._skipped = None
                    return [sample]
                failure = none_returned()
            wait_s = wait_before_next(self._policy, failed=attempt, is_stop_iteration=False)
            if wait_s is None:
                break
            self._mishaps.append(describe("retried", position, number, attempt, failure, NOT_REWOUND))
            wait_for(wait_s, self._pulse)
        if self._policy.then == "raise":
            raise failure
        self._mishaps.append(describe("skipped", position, number, attempt, failure))
        self._skipped = failure
        return []

    def _end(self) -> None:
        self._has_ended = True
        if self._skipped is not None:
            failure, self._skipped = self._skipped, None
            add_note(
                failure,
                "antifreeze: nothing came after it. If the iterator of the dataset ends with its first exception, as "
                "generators do, all that follows is lost, so this one is raised although on_error= would let it pass.",
            )
            raise failure


class PassCounters:
    """Numbers that a dataset raises by one with each pass (`self.epoch += 1` in `__iter__`), often to shuffle by.

    A worker that takes over in a later pass has not seen those before it. Other attributes are not carried over: a
    descriptor or a flag would say that something is open which is not. But those that have changed are named.
    """

    def __init__(self, recipe: Recipe, *, of: type = Dataset, most: int = 1) -> None:
        """`of`: the class whose objects may count; `most`: so often they may be asked to begin in each pass."""
        self._recipe = recipe
        self._of = of
        self._most = most
        self._first = self._plain()
        self.passes = 0
        """So many have begun."""

    def state(self) -> tuple[int, dict[Steps, int], list[str]]:
        """What they are before the next pass, and the paths of what else has changed since the first one."""
        counters: dict[Steps, int] = {}
        changed: list[str] = []
        for way, (path, value) in (self._plain() if self.passes else {}).items():
            _, first = self._first.get(way, (path, None))
            if self._begin_of(way, value) is not None:
                counters[way] = value
            elif first is not None and outline(value) != outline(first):
                changed.append(path)
        return self.passes, counters, changed

    def _begin_of(self, way: Steps, value: Any) -> int | None:
        """What this number was before the first pass, if it has gone up with each one since."""
        begins = (self._first[way][1],) if way in self._first else self._may_begin_with(way)
        for each in begins if type(value) is int else ():
            if type(each) is int and self.passes <= value - each <= self._most * self.passes:
                return each
        return None

    def _may_begin_with(self, way: Steps) -> tuple[Any, ...]:
        """What a number that the dataset did not hold at first may have begun with: what its class has, or 0 or -1.

        (`self.epoch = getattr(self, "epoch", -1) + 1`)
        """
        with contextlib.suppress(Exception):  # of a way that is no more
            for kind in ancestors(type(holder_of(self._recipe, way))):
                if way[-1][1] in namespace_of(kind):
                    return (namespace_of(kind)[way[-1][1]],)
        return 0, -1

    def restore(self, state: tuple[int, dict[Steps, int], list[str]]) -> None:
        """Make them what they were in another worker."""
        begins = {way: self._begin_of(way, value) for way, value in self.state()[1].items()}
        self.passes, values, changed = state
        for way, value in (begins | values).items():
            with contextlib.suppress(Exception):  # of a class that lets nobody set it
                replace(holder_of(self._recipe, way), way[-1], value)
        if changed:
            say_once(
                f"{named('AF504')}: a worker takes over from another in a later pass, and begins with "
                f"{', '.join(changed)} as before the first pass: if items depend on that, they differ from here on. "
                "replay=False or --no-replay makes such a death an error"
            )

    def _plain(self) -> dict[Steps, tuple[str, Any]]:
        """(path, value) of numbers, texts and containers of them that these hold; of containers, what they look like."""
        found: dict[Steps, tuple[str, Any]] = {}
        with contextlib.suppress(Exception):  # none is known; and a dataset must not fail because it was looked at
            for way, thing in search(self._recipe):
                if is_a(thing, self._of):
                    for name, value in attributes_of(thing).items():
                        if look := outline(value):
                            found[(*way.steps, ("attribute", name))] = (
                                f"{way}.{name}",
                                value if type(value) is int else look,
                            )
        return found


class StreamPlace:
    """Where a worker is in its stream, and what its generators are like there."""

    def __init__(self, stream: StreamFetcher, randomness: Randomness, counters: PassCounters) -> None:
        self._stream = stream
        self._randomness = randomness
        self._counters = counters

    def state(self) -> bytes:
        """The place between two batches; only of a stream that `keeps_state` and has begun."""
        if self._stream.has_ended:
            return self.at_end()
        return Place("here", self._randomness.state(), *self._stream.state()).dump()

    def at_start(self) -> bytes:
        """The place before the stream is read from its start."""
        return Place("start", self._randomness.state(), passes=self._counters.state()).dump()

    def at_end(self) -> bytes:
        """The place when nothing more comes."""
        return Place("end", self._randomness.state(), *self._stream.state(), passes=self._counters.state()).dump()

    def restore(self, raw: bytes) -> None:
        """Go where another worker was."""
        place = load_place(raw)
        if place.passes is not None:
            self._counters.restore(place.passes)
        if place.position == "end":
            self._stream.end(place.of_dataset, place.of_iterator)
        elif place.position in ("before", "here"):  # else the pass is still to begin
            self._stream.go_to(place.of_dataset, place.of_iterator, place.shared_out)
        if place.position == "before":
            # A dataset whose `__iter__` is a generator has not run a line of it when the pass begins, and may still say
            # that it is at the end of the one before. Told that, it ends at once; then it is read from its start.
            self._stream.begin_again = functools.partial(self._begin_again, place.generators)
        self._randomness.restore(place.generators, waits=True)

    def _begin_again(self, generators: bytes) -> None:
        self._stream.begin()
        self._randomness.restore(generators)
