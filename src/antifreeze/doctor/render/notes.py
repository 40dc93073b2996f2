"""What is worth saying beside findings: what a loader depends on, how many workers to use, what the whole amounts to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antifreeze.doctor.facts import Facts, Loader, Outcome
from antifreeze.doctor.finding import Finding

ELSEWHERE = "spawn and forkserver (Windows, macOS, Python 3.14)"


def notes_of(facts: Facts, findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Labels and texts."""
    return [("portability", text) for text in portability(facts)]


def portability(facts: Facts) -> Iterator[str]:
    """Of each loader that only a fork can bring to its workers."""
    for loader in facts.loaders:
        if loader.obstacles and loader.start_method in (None, "fork"):
            yield f"{_here(facts, loader)}; fails with {ELSEWHERE}: {_obstacles(loader)}"


def _here(facts: Facts, loader: Loader) -> str:
    trial = facts.as_written(loader.number)
    whose = f"the loader of {loader.built_at} " if loader.built_at and len(facts.loaders) > 1 else ""
    works = trial is not None and trial.outcome is Outcome.OK
    return f"{whose}{'works here with fork' if works else 'can only be forked'}"


def _obstacles(loader: Loader) -> str:
    places = (f"{each.path} at {each.place}" if each.place else each.path for each in loader.obstacles)
    return ", ".join(dict.fromkeys(places))
