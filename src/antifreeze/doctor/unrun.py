"""Loaders of a program that was only read: each with the classes that its samples come from. Pure.

Where it was run, live objects and trials tell more, and checks ask `cases.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from antifreeze.doctor.facts import DatasetClass, Facts, LoaderCall
from antifreeze.doctor.written import Written, written_loaders


@dataclass(frozen=True, slots=True)
class Pair:
    """A dataset class, and a loader over it as the source has it."""

    dataset: DatasetClass
    call: LoaderCall
    written: Written

    @property
    def start_method(self) -> str | None:
        return self.written.start_method

    def has_workers(self, *, more_than: int = 0) -> bool | None:
        """None: it cannot be told from the source."""
        return None if self.written.workers is None else self.written.workers > more_than


def pairs(facts: Facts) -> Iterator[Pair]:
    if facts.source is None or facts.loaders or facts.trials:
        return
    for written in written_loaders(facts):
        if written.call is not None:
            datasets = written.datasets or (facts.source.datasets if len(facts.source.datasets) == 1 else ())
            yield from (Pair(dataset, written.call, written) for dataset in datasets)
