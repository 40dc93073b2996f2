"""What a pass draws from: the sampler and the random generators around it, so that it can be begun again later.

To begin a pass again is to give generators the state that they had then, and to draw as many indices as were drawn then;
nothing is fetched. A sampler that can say where it is (`state_dict`) is asked instead.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from torch.utils.data import BatchSampler

from antifreeze.engine.crossing.ways import Steps
from antifreeze.engine.plan.progress import BEGIN_ANEW, Progress, fingerprint, naming_the_fault
from antifreeze.engine.plan.ticket import as_it_is_now
from antifreeze.engine.seclusion import Secluded, draws_at_once
from antifreeze.engine.worker.generators import (
    Plain,
    counters_of,
    held_of,
    is_plain,
    plain_counters,
    plain_globals,
    plain_held,
    plain_of,
    set_plain,
    set_plain_globals,
)
from antifreeze.engine.worker.kinds import Saved, save
from antifreeze.engine.worker.place import has_state
from antifreeze.engine.worker.randomness import Randomness, holder_of, search
from antifreeze.engine.worker.stream import PassCounters
from antifreeze.errors import CheckpointError
from antifreeze.observe.beside import Beside
from antifreeze.observe.say import say_once
from antifreeze.options import options_of
from antifreeze.torch_side.loaders import EndlessSampler, is_stream

Noted = tuple[int, Any, Any]
"""After so many draws, the sampler and its iterator said this."""


# --- the loader, and what its batches depend on


def traits_of(loader: Any) -> dict[str, Any]:
    """What must be the same when a pass is taken up."""
    sampler = _innermost(loader)
    return {
        "dataset": "iterable" if is_stream(loader) else "map-style",
        "length": _length(loader) if not is_stream(loader) else None,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "sampler": type(loader.sampler).__qualname__,
        "batch_sampler": type(loader.batch_sampler).__qualname__,
        "num_replicas": _number(sampler, "num_replicas"),
        "rank": _number(sampler, "rank"),
        "seeding": options_of(loader).seeding,
        "num_workers": loader.num_workers,
    }


def _length(loader: Any) -> int | None:
    try:
        return len(loader.dataset)
    except (TypeError, NotImplementedError):
        return None


def _number(thing: Any, name: str) -> int | None:
    value = getattr(thing, name, None)
    return value if isinstance(value, int) else None


def _samplers(loader: Any) -> list[Any]:
    """All that have a say in which index comes next."""
    outer = (loader.batch_sampler, loader.sampler)  # the second may hold another one as well: `batch_size=None`
    found: list[Any] = []
    for each in (*outer, *(getattr(sampler, "sampler", None) for sampler in outer)):
        if each is not None and not any(each is other for other in found):
            found.append(each)
    return found


def _innermost(loader: Any) -> Any:
    return getattr(loader.batch_sampler, "sampler", None) or loader.sampler


# --- generators


def capture(loader: Any) -> Plain:
    """The generators that a pass draws from, as they are now."""
    is_torchs = all(type(each).__module__.startswith("torch.utils.data") for each in _samplers(loader))
    return {
        "loader": None if loader.generator is None else plain_of(loader.generator),
        "samplers": plain_held(_saved(_held(loader, _recipe(loader)))),
        "counters": count(loader),
        "globals": plain_globals(with_others=not is_torchs),
    }


def put_back(loader: Any, plain: Plain, *, with_globals: bool) -> None:
    """Give them the state that they had."""
    with naming_the_fault():
        held, recipe = held_of(plain["samplers"]), _recipe(loader)
        of_dataset = _things_of(loader.dataset)
        theirs = {steps for steps in held if not _leads_through(of_dataset, recipe, steps)}
        # What makes a generator at first use makes other things as well: a dataset is left to do so.
        there = _held(loader, recipe).keys() | theirs
        Randomness(recipe).put_back({steps: each for steps, each in held.items() if steps in there})
        others = {steps for steps in _held(loader, recipe) if not _leads_through(of_dataset, recipe, steps)} ^ theirs
        if others or (loader.generator is None) != (plain["loader"] is None):
            raise ValueError("the generators of this loader and its sampler are others than those that it tells of")
        if loader.generator is not None:
            set_plain(loader.generator, plain["loader"])
        if with_globals:
            set_plain_globals(plain["globals"])


def _held(loader: Any, recipe: Any) -> dict[Steps, Any]:
    """The generators that samplers hold, or get from the dataset, beside the loader's own; none of modules."""
    return {
        steps: each
        for steps, each in Randomness(recipe).find().items()
        if each is not loader.generator and is_plain(steps) and not _is_global(steps)
    }


def _saved(held: dict[Steps, Any]) -> dict[Steps, Saved]:
    saved: dict[Steps, Saved] = {}
    for steps, each in held.items():
        with contextlib.suppress(Exception):  # of a kind of the user's that has no state: `put_back` tells
            saved[steps] = save(each)
    return saved


def _is_global(steps: Steps) -> bool:
    return any(kind in ("global", "module") for kind, _ in steps)


def _recipe(loader: Any) -> Any:
    """Samplers, in the place where a worker has its dataset."""
    return SimpleNamespace(dataset=_samplers(loader), collate_fn=None)


def _things_of(dataset: Any) -> dict[int, Any]:
    recipe: Any = SimpleNamespace(dataset=dataset, collate_fn=None)
    return {id(thing): thing for _, thing in search(recipe)}


def _leads_through(things: dict[int, Any], recipe: Any, steps: Steps) -> bool:
    """Whether one of these things is on this way."""
    with contextlib.suppress(Exception):  # a way that is not there, or not there yet
        for length in range(1, len(steps)):
            if id(holder_of(recipe, steps[: length + 1])) in things:
                return True
    return False


# --- what samplers count


_counters: Beside[PassCounters] = Beside()


def _counters_of(loader: Any) -> PassCounters:
    """Numbers that samplers count passes by, and a stream that is read in this process; not those that have a state."""
    known = _counters.get(loader)
    if known is not None:
        return known
    is_read_here = is_stream(loader) and not loader.num_workers
    counting = [each for each in (*_samplers(loader), *([loader.dataset] * is_read_here)) if not has_state(each)]
    recipe: Any = SimpleNamespace(dataset=counting, collate_fn=None)
    # torch's iterator with workers does so when it is new.
    most = 2 if loader.num_workers and options_of(loader).seeding != "ticket" else 1
    return _counters.keep(loader, PassCounters(recipe, of=object, most=most))


def count(loader: Any) -> list[Any]:
    """What they have counted, as plain data."""
    passes, values, _ = _counters_of(loader).state()
    return plain_counters((passes, values, [])) or []


def count_pass(loader: Any) -> None:
    """A pass begins."""
    _counters_of(loader).passes += 1


def count_on(loader: Any, counted: Any) -> None:
    """Have them go on counting where they were."""
    _counters_of(loader).restore(counters_of(counted))


def put_counters_back(loader: Any, progress: Progress) -> None:
    """The same, for a state that was loaded."""
    with naming_the_fault():
        count_on(loader, progress.generators["counters"])


class Aside:
    """Puts the generators that the whole program shares aside: whatever is drawn in here has not been drawn."""

    def __enter__(self) -> Aside:
        self._kept = plain_globals(with_others=True)
        return self

    def __exit__(self, *_: object) -> None:
        set_plain_globals(self._kept)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """As they were, for code of the user's that may set them."""
        ours = plain_globals(with_others=True)
        set_plain_globals(self._kept)
        try:
            yield
        finally:
            self._kept = plain_globals(with_others=True)
            set_plain_globals(ours)


# --- epochs of samplers that are told them


def epoch_of(loader: Any) -> int | None:
    """What `set_epoch` was last told, if there is a sampler that wants to know."""
    sampler = _with_epoch(loader)
    return None if sampler is None else int(sampler.epoch)


def set_epoch(loader: Any, epoch: int | None) -> None:
    """Bring the sampler back to the epoch that is taken up."""
    sampler = _with_epoch(loader)
    if sampler is None or epoch is None or sampler.epoch == epoch:
        return
    say_once(
        f"set_epoch({sampler.epoch}) was said to the sampler, and the state that was loaded is from the middle of epoch "
        f"{epoch}: this pass goes on with epoch {epoch}. Count epochs on from there."
    )
    sampler.set_epoch(epoch)


def _with_epoch(loader: Any) -> Any:
    for sampler in _samplers(loader):
        if callable(getattr(sampler, "set_epoch", None)) and _number(sampler, "epoch") is not None:
            return sampler
    return None


# --- the sampler


class Batches:
    """torch's `BatchSampler`, as an iterator whose sampler can be asked where it is."""

    def __init__(self, indices: Iterator[Any], batch_size: int, *, drop_last: bool) -> None:
        # torch's loops ask for `__iter__`, and those of iterators that can say where they are often do without.
        self._indices = indices if hasattr(indices, "__iter__") else iter(indices.__next__, object())
        self._batch_size = batch_size
        self._drop_last = drop_last

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> list[Any]:
        batch = list(itertools.islice(self._indices, self._batch_size))
        if not batch or (self._drop_last and len(batch) < self._batch_size):
            raise StopIteration
        return batch


class Drawing:
    """The indices of one pass, one after the other, and what the sampler says of itself in between."""

    def __init__(
        self, index_sampler: Any, begun: Iterator[Any], *, every: int = 0, ahead: int = 0, is_secluded: bool = False
    ) -> None:
        """`begun`: what `iter(index_sampler)` gave; `ahead`: so many may be drawn that the user does not have yet.

        `is_secluded`: it must not matter how many, nor what else is drawn from the generators of the program.
        """
        self.drawn = 0
        self.last: Any = None
        """The last index that was drawn."""
        self._is_secluded = is_secluded and not draws_at_once(index_sampler)
        self._index_sampler = index_sampler
        self._every = every
        self._ahead = ahead
        self._is_torchs = type(index_sampler) is BatchSampler
        self._sampler = index_sampler.sampler if self._is_torchs else index_sampler
        self._noted: list[Noted] = []
        self._has_state = False
        self._next: Callable[[], Any] = self._begin_and_draw
        if not self._is_torchs:
            self._begin(begun)
        elif has_state(self._sampler):
            self._begin()  # else with the first draw, as torch does: it may draw at once

    def _begin(self, begun: Iterator[Any] | None = None) -> None:
        indices = iter(self._sampler) if begun is None else begun
        self._asked: Any = indices
        self._indices: Any = indices
        if self._is_torchs:
            size, drop_last = self._index_sampler.batch_size, self._index_sampler.drop_last
            self._indices = Batches(indices, size, drop_last=drop_last)
        self._next = self._indices.__next__
        if self._is_secluded:
            self._next = Secluded(self._next)
        self._has_state = has_state(self._sampler) or has_state(self._asked)
        if self._has_state:
            self._note()

    def _begin_and_draw(self) -> Any:
        self._begin()
        return self._next()

    def __call__(self) -> Any:
        """The next one; StopIteration at the end."""
        self.last = self._next()
        self.drawn += 1
        if self._has_state and self._every and self.drawn % self._every == 0:
            self._note()
        return self.last

    def _note(self) -> None:
        of_sampler = copy.deepcopy(self._sampler.state_dict()) if has_state(self._sampler) else None
        of_iterator = copy.deepcopy(self._asked.state_dict()) if has_state(self._asked) else None
        self._noted.append((self.drawn, of_sampler, of_iterator))
        while len(self._noted) > 1 and self._noted[1][0] <= self.drawn - self._ahead:
            del self._noted[0]

    def note_now(self) -> None:
        """Note what the sampler says, whether it is time for that or not."""
        if self._has_state and self._noted[-1][0] != self.drawn:
            self._note()

    def noted(self, planned: int) -> Noted:
        """What the sampler said when so many had been drawn, or before that."""
        if not self._has_state:
            return 0, None, None
        return [each for each in self._noted if each[0] <= planned][-1]

    def take_up(self, progress: Progress, *, keeps: range) -> dict[int, Any]:
        """Go where another drawing was; gives the indices on the way whose numbers are wanted."""
        kept: dict[int, Any] = {}
        if progress.of_sampler is not None or progress.of_sampler_iterator is not None:
            self._load(progress)
        while self.drawn < progress.planned:
            try:
                index = self()
            except StopIteration:
                raise _another_order(f"it ends after {self.drawn} batches, and {progress.planned} were drawn") from None
            if self.drawn - 1 in keeps:
                kept[self.drawn - 1] = as_it_is_now(index)
            if self.drawn == progress.planned and not self._is_endless:
                self._check(index, progress)
        return kept

    @property
    def _is_endless(self) -> bool:
        return isinstance(self._sampler, EndlessSampler)

    def _load(self, progress: Progress) -> None:
        if has_state(self._sampler):
            self._sampler.load_state_dict(copy.deepcopy(progress.of_sampler))
        self._noted.clear()
        self._begin()
        if not self._has_state:
            return
        self.drawn = progress.noted
        if progress.of_sampler_iterator is not None and has_state(self._asked):
            self._asked.load_state_dict(copy.deepcopy(progress.of_sampler_iterator))
        self._noted = [(progress.noted, progress.of_sampler, progress.of_sampler_iterator)]

    def _check(self, index: Any, progress: Progress) -> None:
        if progress.fingerprint is not None and fingerprint(index) not in (None, progress.fingerprint):
            raise _another_order(f"batch {progress.planned - 1} was another one than {str(index)[:80]}")

    def run_out(self, progress: Progress) -> None:
        """Come to the end, as it had then."""
        self._load(progress)
        if self._has_state:
            for _ in range(progress.planned - progress.noted + 1):
                with contextlib.suppress(StopIteration):
                    self._next()


def run_out(index_sampler: Any, progress: Progress) -> None:
    """Let a sampler that can say where it is come to its end, as it had then: it may count its passes.

    Another one is not begun: it may draw at once.
    """
    if progress.of_sampler is not None or progress.of_sampler_iterator is not None:
        Drawing(index_sampler, iter(index_sampler)).run_out(progress)


def _another_order(why: str) -> CheckpointError:
    return CheckpointError(
        "the sampler gives another order than it gave when this state was made",
        why=why,
        try_="the same seeds and the same data; a sampler whose order depends on something else needs a state_dict of "
        f"its own; or {BEGIN_ANEW}",
    )
