"""What checks ask facts: the loaders in them, each with all that is known of it, and what came again. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from antifreeze.doctor.facts import (
    DatasetClass,
    Facts,
    Held,
    Loader,
    LoaderCall,
    LoaderLoop,
    Outcome,
    Place,
    Raised,
    Sight,
    SlowSample,
    Source,
    Stuck,
    Trial,
    WorkerMemory,
)
from antifreeze.doctor.finding import Weight
from antifreeze.doctor.pictures import as_trials

CAME = (Outcome.OK, Outcome.SLOW)
# Start methods with which workers import the script again, and receive the dataset as a pickle.
IMPORTING = ("spawn", "forkserver")
# What torch's loader says itself; no exception of the user's, whatever stage it surfaced in.
_LOADERS_OWN = re.compile(
    r"DataLoader worker \(pid|DataLoader timed out|Too many open files|unable to allocate shared memory|ancdata"
    r"|AF_UNIX path too long"
)
NOT_FOUND = Loader(number=-1)
NOT_READ = Source(script="")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderCase:
    """One loader, as it is written, as it is alive, and as it was tried.

    A program that runs now is a case, too: its picture is read as a trial that hangs (`pictures.py`), so the same checks
    name the cause there.
    """

    facts: Facts
    number: int | None = None
    """Its number in the trials; None: nothing was run, or not by us."""
    loader: Loader = NOT_FOUND
    """Itself, as it was found alive; if it was not iterated, or nothing was run, one that nothing is known of."""
    call: LoaderCall | None = None
    """The line that makes it; None: it is made where we have not read."""
    trials: tuple[Trial, ...] = ()
    """The one as written comes first."""
    is_live: bool = False
    """Whether it is a program that is running now, and nothing was tried."""
    waiting: Stuck | None = field(default=None, repr=False)
    """The trainer of a running program."""

    @property
    def is_found(self) -> bool:
        return self.loader is not NOT_FOUND

    @property
    def source(self) -> Source:
        """What the program says; nothing, if it was not read."""
        return self.facts.source or NOT_READ

    @property
    def built_at(self) -> Place | None:
        """Of a running program, the line that waits for the loader."""
        if self.is_found:
            return self.loader.built_at or self.loader.iterated_at
        return self.call.place if self.call else self.waiting.place if self.waiting else None

    @property
    def arguments(self) -> Mapping[str, str]:
        """Of its call, as they are written."""
        return self.call.arguments if self.call else {}

    @property
    def workers(self) -> int | None:
        """As many as it asks for; None: that cannot be told."""
        if self.is_found:
            return self.loader.num_workers
        return self.call.workers if self.call else max((trial.workers for trial in self.trials), default=None)

    @property
    def num_workers(self) -> int:
        """The same; 0: there are none, or that cannot be told."""
        return self.workers or 0

    def has_workers(self, *, more_than: int = 0) -> bool | None:
        return None if self.workers is None else self.workers > more_than

    @property
    def is_persistent(self) -> bool | None:
        if self.is_found:
            return self.loader.persistent_workers
        if self.call is None or "**" in self.arguments:
            return None
        return {"True": True, "False": False}.get(self.arguments.get("persistent_workers", "False"))

    @property
    def start_method(self) -> str | None:
        """That torch's workers are started with: seen, written in its call, set by the script, or Python's default here."""
        seen = [self.loader.start_method, *(trial.start_method for trial in self.trials if trial.workers)]
        written = self.call.start_method if self.call else None
        told = next((method for method in (*seen, written) if method), None)
        if told is not None:
            return told
        if self.source.start_methods:
            return self.source.start_method
        if {"multiprocessing_context", "**"} & set(self.arguments):
            return None
        return self.facts.machine.start_method if self.facts.machine else None

    @property
    def is_forked(self) -> bool:
        return self.start_method == "fork"

    @property
    def imports_again(self) -> bool:
        """Whether its workers import the script again."""
        return self.start_method in IMPORTING and self.workers != 0

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
        return self.loader.held

    @property
    def datasets(self) -> tuple[DatasetClass, ...]:
        """Classes of the user's that it takes its samples from."""
        names = {*(self.call.datasets if self.call else ()), self.loader.dataset.rpartition(".")[2]}
        return tuple(each for each in self.source.datasets if each.name in names)

    @property
    def unrun_datasets(self) -> tuple[DatasetClass, ...]:
        """The same in a program that was only read; none where it was run, as live objects and trials tell more."""
        if self.call is None or self.facts.loaders or self.facts.trials:
            return ()
        return self.datasets or (self.source.datasets if len(self.source.datasets) == 1 else ())

    @property
    def loops(self) -> tuple[LoaderLoop, ...]:
        """The `for` loops over it."""
        made = self.call.place if self.call else self.loader.built_at
        return tuple(each for each in self.source.loops if are_one(each.loader, made))

    @property
    def loop(self) -> LoaderLoop | None:
        """The `for` loop over it; the only one there is, if it cannot be told."""
        loops, loader = self.source.loops, self.loader
        own = (
            each for each in loops if are_one(each.place, loader.iterated_at) or are_one(each.loader, loader.built_at)
        )
        return next(own, loops[0] if len(loops) == 1 else None)

    @property
    def as_written(self) -> Trial | None:
        """The trial of torch's loader just as the script has it."""
        return next((trial for trial in self.trials if trial.is_as_written and not self.is_live), None)

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


def loader_cases(facts: Facts) -> list[LoaderCase]:
    """All loaders: those that were run, those of a program that runs now, and those that were only read."""
    calls = facts.source.loaders if facts.source else ()
    cases = []
    for number in sorted({loader.number for loader in facts.loaders} | {trial.loader for trial in facts.trials}):
        loader = facts.loader(number) or NOT_FOUND
        call = next((each for each in calls if are_one(each.place, loader.built_at)), None)
        trials = [trial for trial in facts.trials if trial.loader == number]
        trials.sort(key=lambda trial: (not trial.is_as_written, trial.engine != "torch"))
        cases.append(LoaderCase(facts=facts, number=number, loader=loader, call=call, trials=tuple(trials)))
    for live in as_trials(facts.processes):
        trainer = next((stuck for stuck in live.stuck if stuck.role == "trainer"), None)
        cases.append(LoaderCase(facts=facts, trials=(live,), is_live=True, waiting=trainer))
    run = [case.call for case in cases]
    return cases + [LoaderCase(facts=facts, call=call) for call in calls if call not in run]


def sights_in(datasets: Iterable[DatasetClass], kind: str) -> list[Sight]:
    """What stands out in the source of these classes."""
    return [sight for dataset in datasets for sight in dataset.sights if sight.kind == kind]


def are_one(one: Place | None, other: Place | None) -> bool:
    """Whether two places are the same line."""
    return one is not None and other is not None and str(one) == str(other)


def is_users(raised: Raised) -> bool:
    """Whether it is an exception of the user's code, and not what the loader says about its workers."""
    return not _LOADERS_OWN.search(raised.message)


def carries_gradients(raised: Raised) -> bool:
    """Whether it is what torch says of tensors with a history of autograd, which cannot leave a process."""
    is_said = re.search(r"requires[_ ]grad|automatic differentiation", raised.message)
    return raised.stage in ("collate", "send") and is_said is not None


def raised_in(case: LoaderCase, *stages: str) -> list[Trial]:
    """The trials in which code of the user's raised there."""
    return [trial for trial in case.trials if trial.raised and trial.raised.stage in stages and is_users(trial.raised)]


def comes_again(
    case: LoaderCase, sample: str | None, failed_at: Callable[[Trial], Iterable[str | None]]
) -> bool | None:
    """Whether what happened at this sample happens each time; None: it was not tried again."""
    if sample is None:
        return None
    if sum(sample in failed_at(trial) for trial in case.trials) > 1:
        return True
    return False if loads_elsewhere(case, sample) else None


def loads_elsewhere(case: LoaderCase, sample: str | None) -> bool:
    """Whether a sample that failed with torch's workers loaded without them, or on our engine."""
    for trial in case.trials:
        if trial.raised or trial.deaths or trial.outcome not in CAME:
            continue
        # The trial without workers begins with the samples that failed before it, if an index can be told from its name.
        is_named = not trial.workers and trial.samples > 0 and sample is not None and sample.lstrip("-").isdigit()
        is_stream = case.loader.is_iterable
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


def grown_most(case: LoaderCase) -> WorkerMemory | None:
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
