"""Samples of a `Subset` are fetched by their place in it: what the whole dataset calls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from antifreeze.doctor.facts import Trial

# Of the long lists of a trial.
MOST = 20


def originals(dataset: Any, trial: Trial) -> dict[str, str]:
    """The samples that a trial names → their indices in the dataset that the subset is a part of."""
    from torch.utils.data import Subset  # noqa: PLC0415 - torch is there by now

    found = {}
    for name in _named(trial):
        within, index = dataset, int(name) if name.isdigit() else None
        while index is not None and isinstance(within, Subset):
            index = int(within.indices[index]) if index < len(within.indices) else None
            within = within.dataset
        if index is not None and within is not dataset:
            found[name] = str(index)
    return found


def _named(trial: Trial) -> Iterator[str]:
    singles: Iterable[str | None] = (
        trial.raised.sample if trial.raised else None,
        *(death.sample for death in trial.deaths),
        *(stuck.sample for stuck in (*trial.stuck, *trial.orphans)),
        *(each.sample for each in trial.slowest),
    )
    yield from (name for name in singles if name)
    for names in (trial.none_samples, trial.non_finite, trial.wrong):
        yield from names[:MOST]
