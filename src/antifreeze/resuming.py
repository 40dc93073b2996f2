"""Our iterator, with workers that say now and then where they are, so that another one can begin there."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

from antifreeze import drawing
from antifreeze.drawing import Drawing
from antifreeze.engine.backends import interruptions
from antifreeze.engine.epoch import Epoch
from antifreeze.engine.marks import Marks, Stand, Unfinished
from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.plan.progress import BEGIN_ANEW, Progress, Standpoint, fingerprint, naming_the_fault
from antifreeze.engine.sharing import FURTHEST
from antifreeze.engine.worker.generators import (
    counters_of,
    held_of,
    plain_counters,
    plain_globals,
    plain_of_worker,
    set_plain_globals,
    state_of_worker,
)
from antifreeze.engine.worker.parts import place_of
from antifreeze.engine.worker.place import Place, has_state, load_place, to_try_out
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.errors import CheckpointError
from antifreeze.iterator import Iterator, draw_seed, has_data
from antifreeze.observe.say import say_once
from antifreeze.options import Options
from antifreeze.torch_side.loaders import index_sampler, reset_base


class Loaded(NamedTuple):
    """A state that was loaded, and is known to be whole."""

    progress: Progress
    places: tuple[bytes | None, ...]
    """For workers to begin at; None: as they are born."""


def open_state(progress: Progress) -> Loaded:
    """Make of a progress what workers will need; CheckpointError if it is broken."""
    with naming_the_fault():
        if progress.traits["num_workers"] == 0:
            for each in progress.standpoints:
                held_of((each.generators or {"held": []})["held"])
            return Loaded(progress, ())
        return Loaded(progress, tuple(map(_place_of, progress.standpoints)))


def _place_of(standpoint: Standpoint) -> bytes | None:
    if standpoint.position is None or standpoint.generators is None:
        return None
    generators = state_of_worker(standpoint.generators)
    users = standpoint.of_dataset, standpoint.of_iterator, standpoint.shared_out
    counters = standpoint.generators["counters"]
    passes = None if counters is None else counters_of(counters)
    return Place(standpoint.position, generators, *users, passes).dump()  # type: ignore[arg-type]


def _trying_out(stand: Stand, tried: bytes | None) -> Stand:
    """The same, for a worker that is to try out samples that are done, and none that it is to deliver."""
    if not isinstance(stand.place, bytes):
        return stand
    return dataclasses.replace(stand, place=load_place(stand.place)._replace(tried=tried).dump())


class StatefulIterator(Iterator):
    """Our iterator; its workers say now and then where they are."""

    _is_ours = True

    def __init__(self, loader: Any, loaded: Loaded | None) -> None:
        self._loaded = loaded
        self._is_finished = False
        self._is_persistent = loader.persistent_workers
        self._loader_traits = drawing.traits_of(loader)
        # torch's iterator asks the sampler to begin before `_prepare`; by ticket, after it.
        self._counted: Any = None if self._needs_no_workers else drawing.count(loader)
        if loaded is None:
            super().__init__(loader)
            return
        # Before workers are born, whose dataset may hold these as well.
        drawing.put_back(loader, loaded.progress.generators, with_globals=False)
        if loaded.progress.is_finished:  # another pass begins, and draws as ever: its seed from these
            self._globals_then = plain_globals(with_others=True)
            super().__init__(loader)
        else:
            with drawing.Aside():
                super().__init__(loader)
                self._read_again(loaded.progress)
        self._loaded = None

    @property
    def _base_seed(self) -> int:
        return self._seed

    @_base_seed.setter
    def _base_seed(self, drawn: int) -> None:
        """The seed that workers had when they were where they are to begin goes before one that was drawn since."""
        self._seed = drawn if self._origin is None else self._origin.base_seed

    @property
    def _origin(self) -> Progress | None:
        """Where workers are to begin; None: they are new to it."""
        progress = self._loaded and self._loaded.progress
        is_new = progress is None or (progress.is_finished and (self._needs_no_workers or not self._is_persistent))
        return None if is_new else progress

    def _make_marks(self, loader: Any) -> Marks:
        every: int | None = loader.snapshot_every_n_steps or 0
        if not loader.in_order:
            every = 1  # who is behind must not have to be brought there by what others have done since
        if self._needs_no_workers:
            every = None
        return Marks(loader.num_workers, every, self._is_stream or has_state(loader.dataset))

    @property
    def _is_stream(self) -> bool:
        return bool(self._loader_traits["dataset"] == "iterable")

    @property
    def _needs_no_workers(self) -> bool:
        """Whether batches depend on their tickets alone, and not on what workers did before."""
        return bool(self._loader_traits["seeding"] == "ticket")

    def _recipe(self, loader: Any, options: Options) -> Recipe:
        origin = self._origin
        if origin is not None:
            self._shared_seed = origin.shared_seed
        recipe = super()._recipe(loader, options)
        self._first_shared_seed = recipe.shared_seed
        is_marked = not self._needs_no_workers
        return dataclasses.replace(
            recipe,
            is_marked=is_marked,
            marks_all=is_marked and not loader.in_order,
            is_resumed=is_marked and origin is not None,
        )

    # --- a pass begins

    def _try_to_start(self, loader: Any) -> str | None:
        if self._needs_no_workers:
            self._prepare(loader)
        return super()._try_to_start(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if self._is_stock:
            self._prepare(loader)
        super()._reset(loader, first_iter)

    def _prepare(self, loader: Any) -> None:
        """Make generators as they were, if a pass is taken up, and note what they are like when it begins."""
        self._is_finished = False
        progress = self._loaded and self._loaded.progress
        if progress is not None and progress.is_finished:
            if self._origin is not None:  # whose seed was not drawn for this pass
                drawing.put_back(loader, progress.generators, with_globals=False)
                set_plain_globals(self._globals_then)
            with drawing.Aside():
                drawing.run_out(index_sampler(loader), progress)
        elif progress is not None:
            drawing.set_epoch(loader, progress.epoch)
            drawing.put_back(loader, progress.generators, with_globals=True)
        self._generators_then = drawing.capture(loader)
        if self._counted is not None:
            if self._is_persistent and self._counted[0]:  # the iterator that this one goes on for was not new
                drawing.count_on(loader, self._counted)
            self._generators_then["counters"], self._counted = self._counted, None
        drawing.count_pass(loader)
        self._epoch_then = drawing.epoch_of(loader)

    def _begin_pass(self, loader: Any, *, is_first: bool) -> None:
        assert self._epoch is not None
        if not (self._by_ticket and is_first):  # else that has just been done
            self._prepare(loader)
            reset_base(self, loader, is_first)
            if self._by_ticket:
                self._base_seed = draw_seed(loader)
        seed = int(self._base_seed) if self._by_ticket else None
        ahead = loader.prefetch_factor * loader.num_workers * (1 + FURTHEST if self._by_ticket else 1)
        every = (loader.snapshot_every_n_steps or 0) if loader.in_order else 1
        self._drawing = Drawing(
            self._index_sampler, self._sampler_iter, every=every, ahead=ahead, is_secluded=self._by_ticket
        )
        unfinished = None
        if self._loaded is not None and isinstance(self._epoch, Epoch):  # else what was delivered is read again
            unfinished = self._unfinished(loader, *self._loaded)
            self._num_yielded = 0 if unfinished is None or unfinished.is_over else self._loaded.progress.yielded
        self._pass_shared_seed = self._first_shared_seed if is_first else self._shared_seed
        next_index = functools.partial(interruptions.let_through, self._drawing)
        how: dict[str, Any] = {"is_first": is_first, "shared_seed": self._shared_seed, "seed": seed}
        if unfinished is not None:
            how["unfinished"] = unfinished
        self._begin(next_index, **how)

    def _unfinished(self, loader: Any, progress: Progress, places: Sequence[bytes | None]) -> Unfinished | None:
        stands = [
            Stand(each.done, each.marked, place, each.has_ended)
            for each, place in zip(progress.standpoints, places, strict=True)
        ]
        if progress.is_finished:
            return Unfinished(stands, planned=0, is_over=True) if stands and self._is_persistent else None
        if self._needs_no_workers:
            return self._unfinished_map(progress, [Stand() for _ in range(loader.num_workers)])
        if not stands:
            return None  # what was delivered is read again
        if self._is_stream:
            index = functools.partial(_items, size=loader.batch_size)
            return Unfinished(
                stands,
                progress.planned,
                progress.turn,
                asked=[each.done * (loader.batch_size or 1) for each in stands],
                again=[
                    (progress.planned, WorkerNo(worker), index(ordinal))
                    for worker, each in enumerate(stands)
                    for ordinal in range(each.marked, each.done)
                    if not each.has_ended
                ],
            )
        return self._unfinished_map(progress, stands)

    def _unfinished_map(self, progress: Progress, stands: list[Stand]) -> Unfinished:
        workers = len(stands)
        oldest = min(each.marked * workers + number for number, each in enumerate(stands))
        keeps = range(max(0, min(oldest - 1, progress.planned - 2)), progress.planned)
        indices = self._drawing.take_up(progress, keeps=keeps)
        return Unfinished(
            [
                _trying_out(each, self._tried(progress, each, number, indices, workers=workers))
                for number, each in enumerate(stands)
            ],
            progress.planned,
            progress.turn % workers,
            asked=[0] * workers,
            again=[
                (batch, WorkerNo(batch % workers), index)
                for batch, index in indices.items()
                if not (self._needs_no_workers or progress.open) and batch // workers >= stands[batch % workers].marked
            ],
            open=[(batch, WorkerNo(worker % workers), index) for batch, worker, index in progress.open],
            last_index=indices.get(progress.planned - 1),
        )

    def _tried(
        self, progress: Progress, stand: Stand, number: int, indices: Mapping[int, Any], *, workers: int
    ) -> bytes | None:
        """For a worker to try out: samples of a batch that was delivered, and that it is not to make again."""
        for batch in sorted(indices, reverse=True):
            is_anothers = batch % workers != number or batch // workers < stand.marked
            if is_anothers or progress.open:  # out of order, the last one was delivered, and none is made again
                return to_try_out(indices[batch], batched=self._auto_collation)
        return b"" if stand.marked else None  # a place from before the pass is that of a kept worker

    def _read_again(self, progress: Progress) -> None:
        """Where workers cannot be brought to where others were, all that was delivered is read, and thrown away."""
        if progress.is_finished or not progress.yielded or self._num_yielded:
            return
        say_once(
            f"this pass is taken up by reading {progress.yielded} batches again, which the training has had: "
            + (
                "it runs on torch's own iterator"
                if self._is_stock
                else "it has no workers, or the state's pass had none"
            )
        )
        for number in range(progress.yielded):
            try:
                next(self)
            except StopIteration:
                raise CheckpointError(
                    f"this pass ended after {number} batches, and the state is from after {progress.yielded}",
                    try_=f"the same data, or {BEGIN_ANEW}",
                ) from None

    # --- how far it is

    def _next_in_turn(self) -> Any:
        if isinstance(self._epoch, Epoch) and self._epoch.marks is not None:
            self._epoch.marks.in_hand = None
        is_begun = True  # noqa: F841 - for `_is_in_hand`
        return super()._next_in_turn()

    def _is_in_hand(self) -> bool:
        """Whether a signal handler asks, and the batch that was delivered last has not reached the user yet."""
        begun = locals_of(StatefulIterator._next_in_turn, self).get("is_begun", False)
        return begun or has_data(locals_of(Iterator.__next__, self))

    def _next_data(self) -> Any:
        try:
            return super()._next_data()
        except StopIteration:
            self._is_finished = True
            raise

    def progress(self, loader: Any) -> Progress:
        """How far this pass has got; another thread may be taking a batch."""
        with self._turn or contextlib.nullcontext():  # torch's own iterator has none
            return self._progress(loader)

    def _progress(self, loader: Any) -> Progress:
        common: dict[str, Any] = {
            "traits": self._loader_traits,
            "is_finished": self._is_finished,
            "generators": drawing.capture(loader) if self._is_finished else self._generators_then,
            "base_seed": int(self._base_seed),
            "yielded": self._num_yielded,
            "epoch": self._epoch_then,
        }
        if not isinstance(self._epoch, Epoch) or self._epoch.marks is None:
            return Progress(**common, shared_seed=self._shared_seed, planned=self._num_yielded)
        marks = self._epoch.marks
        self._await(marks, self._epoch)
        if self._epoch.is_torn or self._is_in_hand():
            marks = marks.without_the_one_in_hand()
        noted, of_sampler, of_iterator = self._drawing.noted(marks.planned)
        return Progress(
            **common,
            shared_seed=self._pass_shared_seed,
            planned=marks.planned,
            turn=marks.turn,
            fingerprint=None if self._is_stream or not marks.planned else fingerprint(marks.last_index),
            noted=noted,
            of_sampler=of_sampler,
            of_sampler_iterator=of_iterator,
            open=() if self._is_stream else _open_tickets(marks),
            standpoints=()
            if self._needs_no_workers
            else tuple(_standpoint(number, stand) for number, stand in enumerate(marks.stands)),
        )

    def _await(self, marks: Marks, epoch: Epoch) -> None:
        if self._is_finished and not self._persistent_workers:
            return  # the next pass has other workers
        if marks.unknown and not epoch.can_listen and locals_of(StatefulIterator._next_in_turn, self):
            raise under_way("workers have not said yet where they are when this pass begins")
        try:
            epoch.await_marks(at_end=self._is_finished)
        except BaseException as error:
            epoch.tear(error)
            raise
        if marks.unknown:
            missing = ", ".join(str(number) for number in sorted(marks.unknown))
            raise CheckpointError(
                "nobody knows how far this pass is: its workers have been shut down before they could say where they are",
                where=f"worker {missing}",
                try_="state_dict() while the pass is under way",
            )

    def stop(self) -> None:
        """End it: another pass is to be taken up."""
        self._shutdown_workers()


def locals_of(method: Callable[..., Any], owner: object) -> dict[str, Any]:
    """The variables of this method, which a signal handler, or code that it called, brought us here from; none: it has not.

    They tell how far it has got where no mark could be made or taken back without a moment in between.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is method.__code__ and frame.f_locals.get("self") is owner:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def under_way(why: str) -> CheckpointError:
    """The error for a state that cannot be told in the middle of `next()`."""
    return CheckpointError(
        "nobody can say how far this pass is while a batch is on its way",
        why=why,
        try_="state_dict() between two batches: let a signal handler set a flag, and look at it in the loop",
    )


def _open_tickets(marks: Marks) -> tuple[tuple[int, int, Any], ...]:
    waiting = sorted(marks.open.items())
    # Whose it is matters for those alone that do not bring their seeds; these may have been nobody's yet.
    return tuple((batch, max(0, ticket.worker), ticket.index) for batch, ticket in waiting if batch < marks.planned)


def _items(ordinal: int, *, size: int | None) -> range | int:
    """Which items of its stream a worker's ticket is for."""
    return ordinal if size is None else range(ordinal * size, (ordinal + 1) * size)


def _standpoint(number: int, stand: Stand) -> Standpoint:
    if stand.place is None:
        return Standpoint(stand.done, stand.marked, stand.has_ended)
    place = place_of(stand.place)
    if place.position == "unknown":
        raise CheckpointError(
            "the dataset cannot say where it is",
            where=f"its state_dict(), in worker {number}",
            why=place.of_dataset,
        )
    return Standpoint(
        stand.done,
        stand.marked,
        stand.has_ended,
        place.position,
        plain_of_worker(place.generators) | {"counters": plain_counters(place.passes)},
        place.of_dataset,
        place.of_iterator,
        place.shared_out,
    )
