"""Indices → samples → batch: torch's own steps, with the facts that torch's messages lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import default_collate

from antifreeze.engine.arena.board import Step
from antifreeze.engine.worker import collate
from antifreeze.engine.worker.recipe import Recipe


class Fetcher:
    """Makes the batch that belongs to an index."""

    def __init__(self, recipe: Recipe, room: collate.Room, pulse: memoryview) -> None:
        self._pulse = pulse
        self._dataset = recipe.dataset
        self._batched = recipe.auto_collation
        self._has_getitems = bool(getattr(recipe.dataset, "__getitems__", None))
        is_default = self._batched and recipe.collate_fn is default_collate and collate.is_ours()
        self._collate: Callable[[Any], Any] = collate.collate_samples if is_default else recipe.collate_fn
        self._room = room if is_default else None
        self._samples: Any = None

    def let_go(self) -> None:
        """The batch is on its way: now there is time to free what it was made of, which can take as long as collating."""
        self._samples = None

    def fetch(self, index: Any) -> Any:
        """The batch; whatever user code raises passes through."""
        if not self._batched:
            return self._collate(self._dataset[index])
        samples = self._dataset.__getitems__(index) if self._has_getitems else self._fetch_each(index)
        self._samples = samples
        self._pulse[0] = Step.COLLATING
        if self._room is None:
            return self._collate(samples)
        try:
            with collate.into(self._room):
                return self._collate(samples)
        except Exception as error:
            _note_missing_samples(error, index, samples)
            raise

    def _fetch_each(self, index: Any) -> list[Any]:
        dataset, pulse = self._dataset, self._pulse
        samples = []
        for position, i in enumerate(index, 1):
            pulse[2] = position
            samples.append(dataset[i])
        return samples


def _note_missing_samples(error: Exception, index: Any, samples: Any) -> None:
    """torch's message says that there was a None, or not even that; which sample it was is what helps."""
    missing = [i for i, sample in zip(index, samples, strict=False) if sample is None]
    if not missing:
        return
    shown = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
    error.add_note(
        f"The dataset returned None for {len(missing)} of {len(samples)} samples of this batch: index {shown}. "
        "default_collate cannot put None into a batch: let the dataset raise what went wrong, "
        "or pass a collate_fn that drops such samples."
    )
