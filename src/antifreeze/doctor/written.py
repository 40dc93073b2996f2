"""What checks ask the source: which loop, call and class belong to a loader. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from antifreeze.doctor.facts import DatasetClass, Facts, Loader, LoaderCall, LoaderLoop, Place, Source

_METHODS = re.compile(r"\b(spawn|forkserver|fork)\b")


@dataclass(frozen=True, slots=True)
class Pair:
    """A dataset class, and a loader over it as the source has it."""

    dataset: DatasetClass
    call: LoaderCall
    source: Source

    @property
    def start_method(self) -> str | None:
        return written_start_method(self.source, self.call)

    @property
    def num_workers(self) -> int | None:
        """None: it is not a plain number."""
        return number(self.call.arguments.get("num_workers", "0"))


def pairs(facts: Facts) -> Iterator[Pair]:
    """Of a program that was only read; where it was run, the live objects tell more."""
    if facts.source is None or facts.loaders or facts.trials:
        return
    for call in facts.source.loaders:
        datasets = classes_of(facts.source, call)
        yield from (Pair(dataset, call, facts.source) for dataset in datasets)


def classes_of(source: Source, call: LoaderCall) -> list[DatasetClass]:
    """The classes that the call may be given; one that is named there, or else the only one there is."""
    text = call.arguments.get("dataset", "")
    named = [dataset for dataset in source.datasets if re.search(rf"\b{re.escape(dataset.name)}\b", text)]
    return named or (list(source.datasets) if len(source.datasets) == 1 else [])


def written_start_method(source: Source, call: LoaderCall) -> str | None:
    """That the source asks for; None: it leaves it to Python."""
    texts = [call.arguments.get("multiprocessing_context", ""), *(place.text for place in source.start_methods)]
    return next((found[1] for text in texts if (found := _METHODS.search(text))), None)


def number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,6}", text.strip()) else None


def has_workers(pair: Pair, *, more_than: int = 0) -> bool | None:
    """None: it cannot be told from the source."""
    count = pair.num_workers
    return None if count is None else count > more_than


def loop_of(facts: Facts, loader: Loader | None) -> LoaderLoop | None:
    """The `for` loop over a loader; the only one there is, if it cannot be told."""
    loops = facts.source.loops if facts.source else ()
    if loader is not None:
        for loop in loops:
            if _is_same(loop.place, loader.iterated_at) or _is_same(loop.loader, loader.built_at):
                return loop
    return loops[0] if len(loops) == 1 else None


def _is_same(one: Place | None, other: Place | None) -> bool:
    return one is not None and other is not None and (one.file, one.line) == (other.file, other.line)
