"""What is said beside findings: what it amounts to, what it depends on, and how many workers to use. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from antifreeze.doctor.advice import Advice, advise, verdicts
from antifreeze.doctor.facts import Facts, Trial
from antifreeze.doctor.finding import Finding
from antifreeze.doctor.render.words import OUTCOMES
from antifreeze.doctor.speeds import rate


@dataclass(frozen=True, slots=True)
class Note:
    """A text, and lines that belong to it."""

    kind: str
    """`verdict`, `portability` or `workers`."""
    text: str
    lines: tuple[str, ...] = ()


def notes_of(facts: Facts, findings: Sequence[Finding]) -> list[Note]:
    advice = advise(facts)
    portable = {each.portability for each in advice}
    said = [Note("portability" if text in portable else "verdict", text) for text in verdicts(facts, findings)]
    return [
        *said,
        *(Note("workers", _number(each, facts), tuple(_curve(each, facts))) for each in advice if each.curve),
    ]


def _number(advice: Advice, facts: Facts) -> str:
    """How many to use, and why."""
    loader = facts.loader(advice.loader)
    whose = f"of {loader.built_at}: " if loader and loader.built_at and len(facts.loaders) > 1 else ""
    return (
        f"{whose}{advice.why}"
        if advice.num_workers is None
        else f"{whose}num_workers={advice.num_workers}: {advice.why}"
    )


def _curve(advice: Advice, facts: Facts) -> Iterator[str]:
    """A line for each engine: what came of each number of workers."""
    trials = [trial for trial in facts.trials if trial.loader == advice.loader]
    engines = list(dict.fromkeys(trial.engine for trial in trials))
    for engine in engines:
        tried = {trial.workers: _came_of(trial) for trial in trials if trial.engine == engine}
        counts = "   ".join(f"{workers}: {came}" for workers, came in sorted(tried.items()))
        yield f"{engine:<{max(map(len, engines))}}   {counts}"


def _came_of(trial: Trial) -> str:
    per_s = rate(trial)
    return OUTCOMES[trial.outcome] if per_s is None else f"{per_s:,.0f} samples/s"
