"""What checks ask facts: the cases in them, and what came again. Pure.

A case is one loader with all that was tried with it. A program that runs now is a case, too: its picture is read as a
trial that hangs (`pictures.py`), so the same checks name the cause there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from antifreeze.doctor.facts import (
    Facts,
    Held,
    Loader,
    LoaderLoop,
    Outcome,
    Place,
    Raised,
    SlowSample,
    Stuck,
    Trial,
    WorkerMemory,
)
from antifreeze.doctor.finding import Weight
from antifreeze.doctor.pictures import as_trials
from antifreeze.doctor.written import are_one

CAME = (Outcome.OK, Outcome.SLOW)
# What torch's loader says itself; no exception of the user's, whatever stage it surfaced in.
_LOADERS_OWN = re.compile(
    r"DataLoader worker \(pid|DataLoader timed out|Too many open files|unable to allocate shared memory|ancdata"
    r"|AF_UNIX path too long"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One loader, and all that was tried with it."""

    facts: Facts
    number: int | None
    loader: Loader | None
    trials: tuple[Trial, ...] = ()
    """The one as written comes first."""
    is_live: bool = False
    """Whether it is a program that is running now, and nothing was tried."""
    waiting: Stuck | None = field(default=None, repr=False)
    """The trainer of a running program."""

    @property
    def built_at(self) -> Place | None:
        """Of a running program, the line that waits for the loader."""
        if self.loader is None:
            return self.waiting.place if self.waiting else None
        return self.loader.built_at or self.loader.iterated_at

    @property
    def num_workers(self) -> int:
        return self.loader.num_workers if self.loader else max((trial.workers for trial in self.trials), default=0)

    @property
    def start_method(self) -> str | None:
        """That torch's workers are started with."""
        told = [self.loader.start_method] if self.loader else []
        told += [trial.start_method for trial in self.trials if trial.workers]
        told += [self.facts.machine.start_method] if self.facts.machine else []
        return next((method for method in told if method), None)

    @property
    def is_forked(self) -> bool:
        return self.start_method == "fork"

    @property
    def works_without_workers(self) -> bool | None:
        outcomes = [trial.outcome in CAME for trial in self.trials if not trial.workers]
        return any(outcomes) if outcomes else None

    @property
    def has_launcher(self) -> bool:
        """Whether the trainer was started by another process of the program, which may kill it."""
        run = self.facts.run
        return run is not None and bool(run.is_trainer_a_child)

    @property
    def held(self) -> tuple[Held, ...]:
        return self.loader.held if self.loader else ()

    @property
    def loop(self) -> LoaderLoop | None:
        """The `for` loop over it; the only one there is, if it cannot be told."""
        loops = self.facts.source.loops if self.facts.source else ()
        built, iterated = (self.loader.built_at, self.loader.iterated_at) if self.loader else (None, None)
        own = (each for each in loops if are_one(each.place, iterated) or are_one(each.loader, built))
        return next(own, loops[0] if len(loops) == 1 else None)

    @property
    def slowest(self) -> SlowSample | None:
        return max(
            (each for trial in self.trials for each in trial.slowest), key=lambda slow: slow.seconds, default=None
        )

    def sure(self, *, is_proven: bool) -> Weight:
        """Certain only if it happened before our eyes and nothing else can explain it."""
        return Weight.CERTAIN if is_proven and not self.is_live else Weight.LIKELY

    def counted(self, trials: Iterable[Trial]) -> str:
        """`reproduced in 2 of 4 trials`."""
        if self.is_live:
            return "seen in the running program"
        seen = len(list(trials))
        return f"reproduced in {seen} of {len(self.trials)} trials" if len(self.trials) > 1 else "reproduced"


def cases(facts: Facts) -> Iterator[Case]:
    numbers = {loader.number for loader in facts.loaders} | {trial.loader for trial in facts.trials}
    for number in sorted(numbers):
        trials = [trial for trial in facts.trials if trial.loader == number]
        trials.sort(key=lambda trial: (not trial.is_as_written, trial.engine != "torch"))
        yield Case(facts=facts, number=number, loader=facts.loader(number), trials=tuple(trials))
    for live in as_trials(facts.processes):
        trainer = next((stuck for stuck in live.stuck if stuck.role == "trainer"), None)
        yield Case(facts=facts, number=None, loader=None, trials=(live,), is_live=True, waiting=trainer)


def is_users(raised: Raised) -> bool:
    """Whether it is an exception of the user's code, and not what the loader says about its workers."""
    return not _LOADERS_OWN.search(raised.message)


def carries_gradients(raised: Raised) -> bool:
    """Whether it is what torch says of tensors with a history of autograd, which cannot leave a process."""
    is_said = re.search(r"requires[_ ]grad|automatic differentiation", raised.message)
    return raised.stage in ("collate", "send") and is_said is not None


def raised_in(case: Case, *stages: str) -> list[Trial]:
    """The trials in which code of the user's raised there."""
    return [trial for trial in case.trials if trial.raised and trial.raised.stage in stages and is_users(trial.raised)]


def comes_again(case: Case, sample: str | None, failed_at: Callable[[Trial], Iterable[str | None]]) -> bool | None:
    """Whether what happened at this sample happens each time; None: it was not tried again."""
    if sample is None:
        return None
    if sum(sample in failed_at(trial) for trial in case.trials) > 1:
        return True
    return False if loads_elsewhere(case, sample) else None


def loads_elsewhere(case: Case, sample: str | None) -> bool:
    """Whether a sample that failed with torch's workers loaded without them, or on our engine."""
    for trial in case.trials:
        if trial.raised or trial.deaths or trial.outcome not in CAME:
            continue
        # The trial without workers begins with the samples that failed before it, if an index can be told from its name.
        is_named = not trial.workers and trial.samples > 0 and sample is not None and sample.lstrip("-").isdigit()
        is_stream = case.loader is not None and case.loader.is_iterable
        # Of a stream, it is the place in what one worker yields: the trainer has come by when it has yielded that of all.
        is_passed = is_named and trial.samples >= (int(sample or 0) + 1) * max(case.num_workers, 1)
        if trial.is_whole_epoch or (is_passed if is_stream else is_named):
            return True
    return False


def failed_at(trial: Trial) -> list[str | None]:
    """The sample that raised."""
    return [trial.raised.sample] if trial.raised and trial.raised.stage == "fetch" else []


def touches(held: Held, places: Iterable[Place | None]) -> bool:
    """Whether one of these lines names what is held: `dataset.pool` and `self.pool.map(…)`."""
    names = [name for name in re.split(r"[.\[\]'\"]+", held.path)[1:] if name and not name.isdigit()]
    found = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b") if names else None
    return found is not None and any(found.search(place.text) for place in places if place)


def whose(held: Held) -> str:
    """What is held and where it comes from: `dataset.pool (a ThreadPoolExecutor, train.py:28)`."""
    return f"{held.path} ({held.what}, {held.place})" if held.place else f"{held.path} ({held.what})"


def grown_most(case: Case) -> WorkerMemory | None:
    """Of the worker that grew most, with torch's loader."""
    grown = [memory for trial in case.trials if trial.engine == "torch" and trial.workers for memory in trial.memory]
    return max(grown, key=lambda memory: memory.last_bytes - memory.first_bytes, default=None)


# --- words


def size(count: float) -> str:
    """`64 MB`."""
    return f"{count / 2**30:.1f} GB" if count >= 10 * 2**30 else f"{count / 2**20:.0f} MB"


def at(place: Place | None) -> str:
    return f" at {place}" if place else ""


def of_sample(sample: str | None) -> str:
    return f" of sample {sample}" if sample is not None else ""


def first_line(text: str, *, most: int = 160) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= most else line[: most - 1] + "…"


def last_line(text: str, *, most: int = 160) -> str:
    return first_line("\n".join(reversed(text.splitlines())), most=most)
