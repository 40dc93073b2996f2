"""An iterator without workers that can say how far it is, and begin where another one was."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from antifreeze import drawing
from antifreeze.drawing import Drawing
from antifreeze.engine.plan.progress import Progress, Standpoint, fingerprint
from antifreeze.engine.turns import new_turn
from antifreeze.engine.worker.generators import held_of, plain_held
from antifreeze.engine.worker.place import has_state, state_of
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.inline import TicketIterator, ZeroIterator
from antifreeze.resuming import Loaded


class InlineIterator(ZeroIterator):
    """An iterator without workers, which can say how far it is."""

    _is_ours = True

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
        of_the_program = drawing.capture(loader)["globals"]
        super().__init__(loader)
        if progress is not None:
            self._base_seed = progress.base_seed
            self._try_to_start(loader)  # once more, with that seed
            drawing.put_back(loader, progress.generators, with_globals=not self._is_stream)
        self._generators_then = drawing.capture(loader)
        if self._is_stream:  # which has been begun by now, and may have drawn
            self._generators_then["globals"] = of_the_program
        self._epoch_then = drawing.epoch_of(loader)
        self._sampler_iter = iter(self._index_sampler)
        every = loader.snapshot_every_n_steps or 0
        self._drawing = Drawing(self._index_sampler, self._sampler_iter, every=every, is_secluded=self._by_ticket)

    @property
    def _is_stream(self) -> bool:
        return bool(self._loader_traits["dataset"] == "iterable")

    def _take_up(self, loader: Any, progress: Progress, aside: drawing.Aside) -> None:
        place = progress.standpoints[0] if progress.standpoints else Standpoint()
        if progress.is_finished:
            drawing.put_back(loader, progress.generators, with_globals=False)
            Drawing(loader._index_sampler, iter(loader._index_sampler)).run_out(progress)
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
            self._held.put_back(held_of(place.generators["held"]))

    def _go_on(self, loader: Any, progress: Progress, place: Standpoint, aside: drawing.Aside) -> None:
        indices = self._drawing.take_up(progress, keeps=range(progress.planned if self._is_stream else 0))
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
        with self._turn:  # a batch and its number are one step for a thread that asks for the state
            return super().__next__()

    def progress(self, loader: Any) -> Progress:
        """How far this pass has got; another thread may be taking a batch."""
        with self._turn:
            return self._progress(loader)

    def _progress(self, loader: Any) -> Progress:
        if not self._is_finished:
            self._drawing.note_now()
        planned = self._drawing.drawn
        noted, of_sampler, of_iterator = self._drawing.noted(planned)
        return Progress(
            traits=self._loader_traits,
            is_finished=self._is_finished,
            generators=drawing.capture(loader) if self._is_finished else self._generators_then,
            base_seed=int(self._base_seed),
            shared_seed=self._shared_seed,
            planned=planned,
            yielded=self._num_yielded,
            fingerprint=None if self._is_stream or not planned else fingerprint(self._drawing.last),
            epoch=self._epoch_then,
            noted=noted,
            of_sampler=of_sampler,
            of_sampler_iterator=of_iterator,
            standpoints=() if self._by_ticket else (self._standpoint(),),
        )

    def _standpoint(self) -> Standpoint:
        fetcher: Any = self._dataset_fetcher
        source = fetcher.dataset_iter if self._is_stream else None
        return Standpoint(
            has_ended=self._is_stream and (fetcher.ended if self._zero is None else self._zero.has_ended),
            position="here",
            generators={"held": plain_held(self._held.saved())},
            of_dataset=None if source is self._dataset else copy.deepcopy(state_of(self._dataset)),
            of_iterator=copy.deepcopy(state_of(source)) if self._is_stream else None,
        )

    def stop(self) -> None:
        """End it: another pass is to be taken up."""
        self._is_stopped = True


class StatefulTicketIterator(InlineIterator, TicketIterator):
    """The same, with the random numbers that workers would draw."""

    _is_ours = True

    def _ask_sampler(self) -> None:
        """Not before it is known where the pass is to begin."""
