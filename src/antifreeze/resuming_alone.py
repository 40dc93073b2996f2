"""An iterator without workers that can say how far it is, and begin where another one was."""

from __future__ import annotations

import contextlib
import copy
from types import SimpleNamespace
from typing import Any

from torch.utils.data import dataloader

from antifreeze import drawing
from antifreeze.drawing import Drawing
from antifreeze.engine.plan.progress import Progress, Standpoint, fingerprint
from antifreeze.engine.worker.generators import held_of, plain_held
from antifreeze.engine.worker.place import has_state, state_of
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.inline import TicketIterator
from antifreeze.resuming import Loaded


class InlineIterator(dataloader._SingleProcessDataLoaderIter):
    """torch's iterator without workers, which can say how far it is."""

    def __init__(self, loader: Any, loaded: Loaded | None) -> None:
        self._is_finished = self._is_stopped = False
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

    @property
    def _by_ticket(self) -> bool:
        return bool(self._loader_traits["seeding"] == "ticket")

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
            self._go_on(progress, place, aside)
        if place.generators is not None:
            self._held.put_back(held_of(place.generators["held"]))

    def _go_on(self, progress: Progress, place: Standpoint, aside: drawing.Aside) -> None:
        indices = self._drawing.take_up(progress, keeps=range(progress.planned if self._is_stream else 0))
        self._num_yielded = progress.yielded
        if not self._is_stream:
            return
        fetcher: Any = self._dataset_fetcher
        if place.of_iterator is not None and has_state(fetcher.dataset_iter):
            with aside.lent():
                fetcher.dataset_iter.load_state_dict(copy.deepcopy(place.of_iterator))
        elif not has_state(self._dataset):
            for index in indices.values():
                with contextlib.suppress(StopIteration):  # it had come to its end by then
                    fetcher.fetch(index)
        fetcher.ended = place.has_ended

    def _next_index(self) -> Any:
        return self._drawing()

    def _next_data(self) -> Any:
        if self._is_stopped:
            raise RuntimeError("this iterator has ended with load_state_dict(). iter(loader) starts another one")
        try:
            return super()._next_data()  # type: ignore[no-untyped-call]
        except StopIteration:
            self._is_finished = True
            raise

    def progress(self, loader: Any) -> Progress:
        """How far this pass has got."""
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
            has_ended=self._is_stream and fetcher.ended,
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

    def _ask_sampler(self) -> None:
        """Not before it is known where the pass is to begin."""

    def _begin(self, loader: Any, progress: Progress | None) -> None:
        super()._begin(loader, progress)
        self._draw = self._drawing
        self._batch = 0 if progress is None else progress.planned
