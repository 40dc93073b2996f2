"""A loader as it is written and as it is alive, together: what is known from either. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from antifreeze.doctor.facts import DatasetClass, Facts, Loader, LoaderCall, LoaderLoop, Place, Trial

# Start methods with which workers import the script again, and receive the dataset as a pickle.
IMPORTING = ("spawn", "forkserver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One loader of the patient."""

    facts: Facts
    call: LoaderCall | None = None
    """None: it is made where we have not read."""
    live: Loader | None = None
    """None: it was not iterated, or nothing was run."""

    @property
    def place(self) -> Place | None:
        return self.call.place if self.call else self.live.built_at if self.live else None

    @property
    def number(self) -> int | None:
        return None if self.live is None else self.live.number

    @property
    def workers(self) -> int | None:
        if self.live is not None:
            return self.live.num_workers
        return self.call.workers if self.call else None

    @property
    def is_persistent(self) -> bool | None:
        if self.live is not None:
            return self.live.persistent_workers
        if self.call is None or "**" in self.call.arguments:
            return None
        written = self.call.arguments.get("persistent_workers", "False")
        return {"True": True, "False": False}.get(written)

    @property
    def start_method(self) -> str | None:
        """That its workers are started with: seen, written in its call, set by the script, or Python's default here."""
        if self.live is not None and self.live.start_method is not None:
            return self.live.start_method
        source = self.facts.source
        if self.call is not None and self.call.start_method is not None:
            return self.call.start_method
        if source is not None and source.start_methods:
            return source.start_method
        if self.call is not None and {"multiprocessing_context", "**"} & set(self.call.arguments):
            return None
        return self.facts.machine.start_method if self.facts.machine else None

    @property
    def imports_again(self) -> bool:
        """Whether its workers import the script again."""
        return self.start_method in IMPORTING and self.workers != 0

    @property
    def loops(self) -> tuple[LoaderLoop, ...]:
        source = self.facts.source
        return tuple(each for each in source.loops if are_one(each.loader, self.place)) if source else ()

    @property
    def datasets(self) -> tuple[DatasetClass, ...]:
        """Classes of the user's that it takes its samples from."""
        source = self.facts.source
        names = {*(self.call.datasets if self.call else ()), _last(self.live.dataset) if self.live else ""}
        return tuple(each for each in source.datasets if each.name in names) if source else ()

    @property
    def trial(self) -> Trial | None:
        """The trial of torch's loader just as the script has it."""
        return None if self.live is None else self.facts.as_written(self.live.number)


def written_loaders(facts: Facts) -> list[Written]:
    """All loaders: those that were caught alive, with their calls where these are known, and those only read of."""
    calls = facts.source.loaders if facts.source else ()
    alive = [
        Written(facts=facts, live=live, call=next((each for each in calls if are_one(each.place, live.built_at)), None))
        for live in facts.loaders
    ]
    caught = [each.call for each in alive]
    return [*alive, *(Written(facts=facts, call=call) for call in calls if call not in caught)]


def are_one(one: Place | None, other: Place | None) -> bool:
    """Whether two places are the same line."""
    return one is not None and other is not None and str(one) == str(other)


def speed(trial: Trial) -> float | None:
    """Samples per second, once the workers had started."""
    if trial.first_batch_s is None or trial.batches < 2 or trial.seconds <= trial.first_batch_s:
        return None
    return trial.samples * (trial.batches - 1) / trial.batches / (trial.seconds - trial.first_batch_s)


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]
