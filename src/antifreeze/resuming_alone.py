"""An iterator without workers that can say how far it is, and begin where another one was."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from antifreeze import drawing
from antifreeze.drawing import Drawing
from antifreeze.engine.backends import interruptions
from antifreeze.engine.crossing.ways import Steps
from antifreeze.engine.plan.progress import Progress, Standpoint, fingerprint
from antifreeze.engine.turns import new_turn
from antifreeze.engine.worker.generators import held_of, plain_held
from antifreeze.engine.worker.kinds import Saved
from antifreeze.engine.worker.place import has_state, state_of
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.inline import TicketIterator, ZeroIterator
from antifreeze.resuming import Loaded, locals_of, under_way
from antifreeze.torch_side.loaders import index_sampler


class _Before(NamedTuple):
    """How it was before a batch was begun."""

    drawn: int
    last: Any
    yielded: int
    has_ended: bool
    held: dict[Steps, Saved] | None
    """The generators that the dataset holds; None: as they are now."""
    is_sure: bool = True
    """Whether these are all."""


class InlineIterator(ZeroIterator):
    """An iterator without workers, which can say how far it is."""

    _is_ours = True
    _interrupted: _Before | None = None
    """How it was before the last batch, if that was begun and has not reached the user, by a signal: Ctrl-C, say."""

    def __init__(self, loader: Any, loaded: Loaded | None) -> None:
        self._is_finished = self._is_stopped = False
        self._turn = new_turn()
        self._loader_traits = drawing.traits_of(loader)
        self._held = Randomness(SimpleNamespace(dataset=loader.dataset, collate_fn=loader.collate_fn))  # type: ignore[arg-type]
        if loaded is None:
            self._begin(loader, None)
            return
        with drawing.Aside() as aside:
            self._take_up(loader, loaded.progress, aside)

    def _begin(self, loader: Any, progress: Progress | None) -> None:
        # Before anything is begun: a sampler, or a stream, may draw at once.
        self._generators_then = drawing.capture(loader)
        self._epoch_then = drawing.epoch_of(loader)
        drawing.count_pass(loader)
        super().__init__(loader)
        every = loader.snapshot_every_n_steps or 0
        self._drawing = Drawing(
            self._index_sampler, self._sampler_iter, every=every, ahead=1, is_secluded=self._by_ticket
        )
        if progress is None:
            self._ask_first()

    @property
    def _is_stream(self) -> bool:
        return bool(self._loader_traits["dataset"] == "iterable")

    def _take_up(self, loader: Any, progress: Progress, aside: drawing.Aside) -> None:
        place = progress.standpoints[0] if progress.standpoints else Standpoint()
        if progress.is_finished:
            drawing.put_back(loader, progress.generators, with_globals=False)
            drawing.run_out(index_sampler(loader), progress)
        else:
            drawing.set_epoch(loader, progress.epoch)
            drawing.put_back(loader, progress.generators, with_globals=True)
        if place.of_dataset is not None and has_state(loader.dataset):
            with aside.lent():
                loader.dataset.load_state_dict(copy.deepcopy(place.of_dataset))
        if progress.is_finished:
            with aside.lent():  # another pass begins, and draws as ever
                self._begin(loader, None)
        else:
            self._begin(loader, progress)
            self._go_on(loader, progress, place, aside)
        if place.generators is not None:
            self.put_back(held_of(place.generators["held"]))

    @property
    def awaited(self) -> dict[Steps, Saved]:
        """States of generators that the dataset has not made yet, by the way to each."""
        return self._held.awaited

    def put_back(self, held: dict[Steps, Saved]) -> None:
        """Give the generators of the dataset these states: now, or when the dataset has made them."""
        waits = self._zero is not None and not self._is_stream
        self._held.put_back(held, waits=waits)
        if self._zero is not None and waits:
            self._zero.resumed = self._held

    def _go_on(self, loader: Any, progress: Progress, place: Standpoint, aside: drawing.Aside) -> None:
        indices = self._drawing.take_up(progress, keeps=range(progress.planned if self._is_stream else 0))
        if not progress.planned:
            self._ask_first()
        self._num_yielded = progress.yielded
        if self._is_stream:
            self._go_on_in_stream(indices, place, aside)
        if self._zero is not None:
            self._zero.go_to(batch=progress.planned, item=progress.planned * (loader.batch_size or 1))

    def _go_on_in_stream(self, indices: Mapping[int, Any], place: Standpoint, aside: drawing.Aside) -> None:
        fetcher: Any = self._dataset_fetcher
        if place.of_iterator is not None and has_state(fetcher.dataset_iter):
            with aside.lent():
                fetcher.dataset_iter.load_state_dict(copy.deepcopy(place.of_iterator))
        elif not has_state(self._dataset):
            for index in indices.values():
                self._read_again(index)
        fetcher.ended = place.has_ended
        if self._zero is not None:
            self._zero.has_ended = place.has_ended

    def _read_again(self, index: Any) -> None:
        if self._zero is not None:
            self._zero.read_again(index)
            return
        with contextlib.suppress(StopIteration):  # it had come to its end by then
            self._dataset_fetcher.fetch(index)

    def _ask_first(self) -> None:
        """Draws the first index, if that is to happen when the pass begins."""

    @property
    def _asked_ahead(self) -> int:
        """How many indices have been drawn of which no batch has been made."""
        return 0

    def _next_index(self) -> Any:
        return self._drawing()

    def _next_data(self) -> Any:
        if self._is_stopped:
            raise RuntimeError("this iterator has ended with load_state_dict(). iter(loader) starts another one")
        try:
            return super()._next_data()
        except StopIteration:
            self._is_finished = True
            raise

    def __next__(self) -> Any:
        before = None
        try:
            with self._turn:  # a batch and its number are one step for a thread that asks for the state
                self._interrupted = None
                before = self._now_before_batch()
                return super().__next__()
        except BaseException as error:
            is_interruption = not isinstance(error, Exception) or interruptions.is_of_a_handler(error)
            self._interrupted = before if is_interruption else None
            raise

    def _now_before_batch(self) -> _Before:
        try:
            held = self._held.saved(if_quick=True)
        except Exception:  # of a generator of the user's own kind: told when a state is asked for
            return self._now()._replace(is_sure=False)
        return self._now(held)._replace(is_sure=self._held.is_sure)

    def _now(self, held: dict[Steps, Saved] | None = None) -> _Before:
        drawn = self._drawing.drawn - self._asked_ahead
        return _Before(drawn, self._drawing.last, self._num_yielded, self._has_ended, held)

    @property
    def _has_ended(self) -> bool:
        if not self._is_stream:
            return False
        fetcher: Any = self._dataset_fetcher
        return bool(fetcher.ended if self._zero is None else self._zero.has_ended)

    def progress(self, loader: Any) -> Progress:
        """How far this pass has got; another thread may be taking a batch."""
        with self._turn:
            before: _Before | None = self._interrupted or locals_of(InlineIterator.__next__, self).get("before")
            if self._is_finished or before is None:
                return self._progress(loader, self._now())
            self._check_can_go_back()
            if not before.is_sure and self._held.find().keys() != (before.held or {}).keys():
                raise under_way("the dataset has made a generator, and nobody knows whether for a batch or before it")
            return self._progress(loader, before)

    def _progress(self, loader: Any, now: _Before) -> Progress:
        if not self._is_finished and now.drawn == self._drawing.drawn:
            self._drawing.note_now()
        noted, of_sampler, of_iterator = self._drawing.noted(now.drawn)
        return Progress(
            traits=self._loader_traits,
            is_finished=self._is_finished,
            generators=drawing.capture(loader) if self._is_finished else self._generators_then,
            base_seed=int(self._base_seed),
            shared_seed=self._shared_seed,
            planned=now.drawn,
            yielded=now.yielded,
            fingerprint=None if self._is_stream or not now.drawn else fingerprint(now.last),
            epoch=self._epoch_then,
            noted=noted,
            of_sampler=of_sampler,
            of_sampler_iterator=of_iterator,
            standpoints=() if self._by_ticket else (self._standpoint(now),),
        )

    def _standpoint(self, now: _Before) -> Standpoint:
        source = self._source
        return Standpoint(
            has_ended=now.has_ended,
            position="here",
            generators={"held": plain_held(self._held.saved() if now.held is None else now.held)},
            of_dataset=None if source is self._dataset else copy.deepcopy(state_of(self._dataset)),
            of_iterator=copy.deepcopy(state_of(source)) if self._is_stream else None,
        )

    @property
    def _source(self) -> Any:
        """What an iterable dataset is read from."""
        fetcher: Any = self._dataset_fetcher
        return fetcher.dataset_iter if self._is_stream else None

    def _check_can_go_back(self) -> None:
        """Raise if nobody knows how it was before the batch that was begun."""
        if has_state(self._source) or (self._is_stream and has_state(self._dataset)):
            raise under_way("the dataset has given some of its items for a batch, and can only say where it is now")

    def stop(self) -> None:
        """End it: another pass is to be taken up."""
        self._is_stopped = True


class StatefulTicketIterator(InlineIterator, TicketIterator):
    """The same, with the random numbers that workers would draw."""

    _is_ours = True

    def _ask_sampler(self) -> None:
        """Leaves that to `_ask_first`: here it is not known yet where the pass begins."""

    def _ask_first(self) -> None:
        with contextlib.suppress(StopIteration):  # there is none
            self._asked_first.append(self._drawing())

    @property
    def _asked_ahead(self) -> int:
        return len(self._asked_first)

    def _next_index(self) -> Any:
        return self._asked_first.pop() if self._asked_first else self._drawing()
