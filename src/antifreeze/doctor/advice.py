"""From trials to advice: how many workers and why, the measured curve, and what can be said as a whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from antifreeze.doctor.facts import Facts, Loader, Machine, Obstacle, Outcome, Place, Trial
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.speeds import rate

# A rate that is so near to the best is as good: measurements of a few seconds are no better than that.
NEAR = 0.95
# Of the memory that is free, so that the training itself has some left.
MEMORY_SHARE = 0.8
# No workers at all must be so much faster to be advised: a worker also loads while the training computes.
ALONE = 1.2
# Families of what ends or spoils an epoch; the others slow it down, or are about the machine.
BREAKING = ("AF1", "AF2", "AF3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement of the curve."""

    engine: str
    workers: int
    samples_per_s: float
    worker_bytes: int | None = None
    """Private memory of the largest worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """For one loader."""

    loader: int
    num_workers: int | None
    """None: too little was measured."""
    why: str
    curve: tuple[Point, ...] = ()
    portability: str | None = None
    """What it would meet with another start method."""


def advise(facts: Facts) -> list[Advice]:
    return [_advise(facts, loader) for loader in facts.loaders]


def verdicts(facts: Facts, findings: Iterable[Finding] = ()) -> list[str]:
    """What is to be said beside, or instead of, findings."""
    said = [text for loader in facts.loaders if (text := _fails_itself(facts, loader))]
    found = list(findings)
    is_sick = any(finding.weight is not Weight.POSSIBLE for finding in found)
    doubts = [finding.code for finding in found if finding.code.startswith(BREAKING)]
    if not facts.trials:
        said += _untried(facts)
    elif not said and not is_sick and _all_work(facts) and doubts:
        codes = " and ".join(dict.fromkeys(doubts))
        said.append(f"loading worked in the trials{_tried(facts)}; {codes} may still happen later")
    elif not said and not is_sick and _all_work(facts):
        said.append(
            f"loading is healthy; the freeze is elsewhere{_place_instead(facts) or ', or later'}{_tried(facts)}"
        )
    return said + _portabilities(facts)


# --- the number of workers


def measured(trials: Iterable[Trial]) -> list[Point]:
    """The curve: torch's loader first, by the number of workers."""
    points = [
        Point(
            engine=trial.engine,
            workers=trial.workers,
            samples_per_s=per_s,
            worker_bytes=max((memory.last_bytes for memory in trial.memory), default=None),
        )
        for trial in trials
        if (per_s := rate(trial)) is not None
    ]
    return sorted(points, key=lambda point: (point.engine != "torch", point.workers))


def recommended(points: Sequence[Point], machine: Machine | None) -> tuple[int | None, str]:
    """The fewest workers that are nearly as fast as the best, and why."""
    engine = "torch" if any(point.engine == "torch" and point.workers for point in points) else "antifreeze"
    alone = next((point for point in points if not point.workers), None)
    rival = [point for point in points if point.engine == engine and point.workers]
    if not rival:
        return None, "no number of workers could be measured"
    fitting = [point for point in rival if _fits(point, machine)] or [min(rival, key=lambda point: point.workers)]
    best = max(fitting, key=lambda point: point.samples_per_s)
    if alone and alone.samples_per_s > ALONE * best.samples_per_s:
        return 0, f"{alone.samples_per_s:.0f} samples/s without workers, at most {best.samples_per_s:.0f} with them"
    chosen = min(
        (point for point in fitting if point.samples_per_s >= NEAR * best.samples_per_s),
        key=lambda point: point.workers,
    )
    why = f"{chosen.samples_per_s:.0f} samples/s; more workers gain less than 5 %"
    if len(fitting) == 1:
        why = f"{chosen.samples_per_s:.0f} samples/s, the only number that could be measured"
    elif chosen.workers == max(point.workers for point in rival):
        why = f"{chosen.samples_per_s:.0f} samples/s, the best that was measured"
    left_out = max(
        (point for point in rival if point not in fitting), key=lambda point: point.samples_per_s, default=None
    )
    if left_out is not None and left_out.samples_per_s > best.samples_per_s:
        why = f"{chosen.samples_per_s:.0f} samples/s; {left_out.workers} gave {left_out.samples_per_s:.0f}, on too few "
        why += "processors or too little memory for them"
    elif left_out is not None:
        why += "; more would not fit into this machine"
    return chosen.workers, why + (" (on antifreeze: torch's loader does not work)" if engine == "antifreeze" else "")


def _fits(point: Point, machine: Machine | None) -> bool:
    if machine is None:
        return True
    available = machine.memory_available_bytes
    is_small = not available or point.workers * (point.worker_bytes or 0) <= MEMORY_SHARE * available
    return is_small and point.workers <= max(1, machine.usable_cpus)


def _advise(facts: Facts, loader: Loader) -> Advice:
    points = measured(trial for trial in facts.trials if trial.loader == loader.number)
    number, why = recommended(points, facts.machine)
    return Advice(
        loader=loader.number,
        num_workers=number,
        why=why,
        curve=tuple(points),
        portability=portability(facts, loader),
    )


# --- verdicts


def portability(facts: Facts, loader: Loader) -> str | None:
    """What keeps a loader that works with fork from working elsewhere."""
    method = loader.start_method or (facts.machine.start_method if facts.machine else None)
    trial = facts.as_written(loader.number)
    if method != "fork" or not loader.obstacles or not loader.num_workers:
        return None
    first = loader.obstacles[0]
    at = f" at {first.place}" if first.place else ""
    more = f", and {len(loader.obstacles) - 1} more" if len(loader.obstacles) > 1 else ""
    works = "loading works here with fork; it fails" if trial and trial.outcome is Outcome.OK else "loading would fail"
    return f"{works} with spawn and forkserver (Windows, macOS, Python 3.14): {first.path}{at}{more}"


def _portabilities(facts: Facts) -> list[str]:
    """One for each obstacle: loaders of one dataset meet the same."""
    told: dict[Obstacle, str] = {}
    for loader in facts.loaders:
        text = portability(facts, loader)
        if text is not None:
            told.setdefault(loader.obstacles[0], text)
    return list(told.values())


def _fails_itself(facts: Facts, loader: Loader) -> str | None:
    trials = [trial for trial in facts.trials if trial.loader == loader.number]
    alone = next((trial for trial in trials if not trial.workers), None)
    if alone is None or alone.outcome in (Outcome.OK, Outcome.SLOW):
        return None
    if any(trial.outcome is Outcome.OK for trial in trials):  # it passes by itself
        return None
    where = _place_of(alone)
    return f"the data itself fails without workers{f', at {where}' if where else ''}: {_outcome(alone)}"


def _outcome(trial: Trial) -> str:
    sample = trial.raised.sample if trial.raised else next((each.sample for each in trial.stuck if each.sample), None)
    of = f" at sample {sample}" if sample is not None else ""
    match trial.outcome:
        case Outcome.HANG:
            return f"it hangs{of}"
        case Outcome.CRASH:
            return f"the process ends{of}"
        case Outcome.SHORT:
            return "the epoch ends early"
        case _:
            return f"{trial.raised.type}{of}" if trial.raised else "it fails"


def _place_of(trial: Trial) -> Place | None:
    places = [trial.raised.place] if trial.raised else []
    places += [stuck.place for stuck in trial.stuck] + [death.place for death in trial.deaths]
    return next((place for place in places if place), None)


def _all_work(facts: Facts) -> bool:
    return all(trial.outcome in (Outcome.OK, Outcome.SLOW) for trial in facts.trials if trial.engine == "torch")


def _tried(facts: Facts) -> str:
    """What "healthy" stands on, and no more: ` (tried: 50 batches with 2 workers, …)`."""
    written = [_extent(trial) for trial in facts.trials if trial.is_as_written]
    others = sorted({trial.workers for trial in facts.trials if not trial.is_as_written and trial.engine == "torch"})
    counts = [" and ".join(filter(None, [", ".join(map(str, others[:-1])), str(others[-1])]))] if others else []
    some = [f"some batches with {each} worker{'s' * (others != [1])}" for each in counts]
    said = "; ".join([*written, *some])
    return f" (tried: {said})" if said else ""


def _extent(trial: Trial) -> str:
    batches = f"{trial.batches} batch{'es' * (trial.batches != 1)}"
    amount = f"one epoch, {batches}," if trial.is_whole_epoch else f"{batches} of one epoch"
    again = ", and the start of a second" if trial.epochs > 1 else ""
    return f"{amount} with {trial.workers} worker{'s' * (trial.workers != 1)}{again}"


def _place_instead(facts: Facts) -> str:
    stuck = facts.run.stuck if facts.run else ()
    place = next((each.place for each in stuck if each.place), None)
    return f", at {place}" if place else ""


def _untried(facts: Facts) -> list[str]:
    """Why there are no trials; nothing to say where none were asked for."""
    run = facts.run
    if run is None:
        return []
    if run.raised:
        at = f" at {run.raised.place}" if run.raised.place else ""
        return [f"nothing could be tried: the script ends before its first batch, with {run.raised.type}{at}"]
    if run.outcome is Outcome.HANG:
        return [f"nothing could be tried: the script hangs before its first batch{_place_instead(facts)}"]
    if not run.reached_a_loader:
        return ["nothing could be tried: the script iterates no DataLoader"]
    return ["nothing could be tried: its loaders could not be examined"]
