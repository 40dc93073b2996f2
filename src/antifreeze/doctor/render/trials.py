"""A trial in a line: what came of it, how fast it was, where the time and the memory went. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.facts import Facts, Loader, Trial
from antifreeze.doctor.render.words import OUTCOMES, count_of, size
from antifreeze.doctor.speeds import rate

MOST_SLOW = 3
MOST_NAMED = 5


def trials_of(facts: Facts) -> list[str]:
    """All that were made, in their order."""
    return [f"{_title(trial, facts)}: {', '.join(_parts(trial, facts))}" for trial in facts.trials]


def _title(trial: Trial, facts: Facts) -> str:
    loader = facts.loader(trial.loader)
    place = f" of {loader.built_at}" if loader and loader.built_at and len(facts.loaders) > 1 else ""
    written = ", as written" if trial.is_as_written else ""
    return f"{trial.engine}, {count_of(trial.workers, 'worker')}{place}{written}"


def _parts(trial: Trial, facts: Facts) -> Iterator[str]:
    again = " and the start of a second epoch" if trial.epochs > 1 else ""
    yield f"{OUTCOMES[trial.outcome]} after {count_of(trial.batches, 'batch', many='batches')}{again}"
    if (per_s := rate(trial)) is not None:
        yield f"{per_s:,.0f} samples/s"
    if trial.first_batch_s is not None:
        yield f"first batch {_span(trial.first_batch_s)}"
    if trial.fetch_s is not None and trial.collate_s is not None:
        yield f"fetching {_span(trial.fetch_s)}, collating {_span(trial.collate_s)}"
    if trial.lock_share:
        yield f"{trial.lock_share:.0%} of the time in locks"
    if trial.memory:
        yield f"{size(max(each.last_bytes for each in trial.memory))} for each worker alone"
    yield from _in_shared_memory(trial, facts.loader(trial.loader), facts)
    if trial.slowest:
        slow = "; ".join(f"{each.sample} {_span(each.seconds)}" for each in trial.slowest[:MOST_SLOW])
        yield f"slowest samples {slow}"
    if trial.non_finite:
        yield f"not finite: {', '.join(trial.non_finite[:MOST_NAMED])}"
    if trial.shutdown_s is not None:
        yield f"leaving takes {_span(trial.shutdown_s)}"


def _in_shared_memory(trial: Trial, loader: Loader | None, facts: Facts) -> Iterator[str]:
    """What torch needs of /dev/shm, against what there is."""
    room = facts.machine.shm_total_bytes if facts.machine else None
    if trial.engine == "torch" and trial.workers and trial.batch_bytes and loader and room:
        needed = trial.workers * (loader.prefetch_factor or 2) * trial.batch_bytes
        yield f"needs {size(needed)} of {size(room)} in /dev/shm"


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
