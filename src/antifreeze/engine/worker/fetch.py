"""Indices → samples → batch: torch's own steps, with the facts that torch's messages lack."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset, default_collate

from antifreeze.codes import named
from antifreeze.engine.arena.board import Step
from antifreeze.engine.showing import add_note, show
from antifreeze.engine.worker import collate
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.stopwatch import Stopwatch
from antifreeze.torch_side.workers import HAS_NUMPY

_USED_UP: tuple[type, ...] = (list, dict, set)
if HAS_NUMPY:
    import numpy as np

    _USED_UP += (np.ndarray,)


class Batcher:
    """Makes a batch of samples, however they were come by."""

    def __init__(self, recipe: Recipe, room: collate.Room | None, pulse: memoryview, stopwatch: Stopwatch) -> None:
        self._pulse = pulse
        self.stopwatch = stopwatch
        self._dataset = recipe.dataset
        self._batched = recipe.auto_collation
        self._is_default = self._batched and recipe.collate_fn is default_collate
        self._collate: Callable[[Any], Any] = recipe.collate_fn
        if self._is_default and room is not None and collate.is_ours():
            self._collate = collate.IntoSlot(room)
        self._samples: Any = None
        self.missing: int | None = None
        """After an error of collating: position of the first sample that is None, if that is torch's default's."""

    @property
    def refuses_none(self) -> bool:
        """Whether samples must not be None: with torch's default collate, unless the user has taught it None."""
        return self._is_default and collate.refuses_none()

    def let_go(self) -> None:
        """The batch is on its way: now there is time to free what it was made of, which can take as long as collating."""
        self._samples = None

    def collate(self, samples: Any, index: Any) -> Any:
        """The batch that samples make."""
        self._samples = samples
        self._pulse[0] = Step.COLLATING
        try:
            batch = self._collate(samples)
        except Exception as error:
            self.missing = _note_missing_samples(error, index, samples) if self._is_default else None
            raise
        self.stopwatch.collated()
        return batch

    def collate_one(self, sample: Any) -> Any:
        """What a sample becomes when it is no batch of several."""
        self._pulse[0] = Step.COLLATING
        batch = self._collate(sample)
        self.stopwatch.collated()
        return batch


class Fetcher(Batcher):
    """Makes the batch that belongs to an index."""

    def __init__(self, recipe: Recipe, room: collate.Room | None, pulse: memoryview, stopwatch: Stopwatch) -> None:
        super().__init__(recipe, room, pulse, stopwatch)
        # Without workers it is the sampler's own object.
        self._to_be_used = to_be_used if recipe.num_workers else _itself
        self.has_getitems = bool(getattr(recipe.dataset, "__getitems__", None))
        self.has_getitem = getattr(type(recipe.dataset), "__getitem__", None) not in (None, Dataset.__getitem__)

    def fetch(self, index: Any) -> Any:
        """The batch; whatever user code raises passes through."""
        if not self._batched:
            sample = self._dataset[self._to_be_used(index)]
            self.stopwatch.fetched(1, whole=index)
            return self.collate_one(sample)
        if self.has_getitems:
            samples = self._dataset.__getitems__(self._to_be_used(index))
            self.stopwatch.fetched(operator.length_hint(samples, 1), whole=index)
        elif self.stopwatch.times_samples:
            samples = self._fetch_timed(index)
        else:
            dataset, pulse = self._dataset, self._pulse
            samples = []
            for position, i in enumerate(index, 1):
                pulse[2] = position
                samples.append(dataset[i])
            self.stopwatch.fetched(len(samples), whole=index)
        return self.collate(samples, index)

    def _fetch_timed(self, index: Any) -> list[Any]:
        dataset, pulse, watch = self._dataset, self._pulse, self.stopwatch
        clock, since, slow_ns = watch.clock, watch.since, watch.slow_ns
        samples = []
        for position, i in enumerate(index, 1):
            pulse[2] = position
            samples.append(dataset[i])
            now = clock()
            if now - since > slow_ns:
                slow_ns = watch.note_slow(now - since, position - 1, i)
            since = now
        watch.fetched(len(samples))
        return samples

    def fetch_one(self, index: Any) -> Any:
        """One sample, also of a dataset that only fetches whole batches."""
        if self.has_getitems and not self.has_getitem:
            return self._dataset.__getitems__([index])[0]
        return self._dataset[index]

    def try_out(self, indices: Sequence[Any], *, patience_s: float) -> None:
        """Make a batch of these samples, and forget it; where they take long, of one."""
        until_s = time.monotonic() + patience_s
        samples: list[Any] = []
        for position, i in enumerate(indices, 1):
            self._pulse[2] = position
            samples += self._dataset.__getitems__([i]) if self._batched and self.has_getitems else [self._dataset[i]]
            if time.monotonic() >= until_s:
                break
        if self._batched and samples:
            self.collate(samples, indices)
        elif samples:
            self.collate_one(samples[0])

    def fetch_up_to(self, position: int, index: Any) -> None:
        """All samples of a batch that come before this position, for what they draw."""
        for number, i in enumerate(itertools.islice(index, position) if not self.has_getitems else (), 1):
            self._pulse[2] = number
            self._dataset[i]
        self._pulse[2] = position + 1


def to_be_used(index: Any) -> Any:
    """What user code gets in the place of this index, which it may be asked for again: it may use up a list."""
    return index.copy() if type(index) in _USED_UP else index


def _itself(index: Any) -> Any:
    return index


def has_none(samples: Any) -> bool:
    """Whether there is a None among the samples; what is no list of them is not looked into."""
    return isinstance(samples, list | tuple) and any(sample is None for sample in samples)


def _note_missing_samples(error: Exception, index: Any, samples: Any) -> int | None:
    """torch's message says that there was a None, or not even that; which sample it was is what helps."""
    missing = [place for place in enumerate(zip(index, samples, strict=False)) if place[1][1] is None]
    if not missing:
        return None
    shown = ", ".join(show(i) for _, (i, _) in missing[:5]) + (", …" if len(missing) > 5 else "")
    add_note(
        error,
        f"The dataset returned None for {len(missing)} of {len(samples)} samples of this batch: index {shown}. "
        "default_collate cannot put None into a batch: let the dataset raise what went wrong, "
        f"or pass a collate_fn that drops such samples. ({named('AF329')})",
    )
    return missing[0][0]
