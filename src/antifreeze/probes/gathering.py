"""What the processes of a trial have written into its directory → the fact `Trial`."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from antifreeze.doctor.facts import (
    Death,
    Outcome,
    Place,
    Raised,
    SlowSample,
    Stuck,
    Trial,
    WorkerMemory,
    made_of,
)
from antifreeze.probes.patient.journals import WorkerNotes, read_plain, worker_notes
from antifreeze.probes.patient.notes import read_events, read_state
from antifreeze.probes.places import Places
from antifreeze.probes.stacks import current_stack, own_part

MOST_SAMPLES = 50
# More of these: how many there are tells a fault from what is meant.
MOST_NOT_FINITE = 1000
SLOWEST = 5
TRAINER = -1
"""In the place of a worker's number, where the trainer itself has ended."""

Event = dict[str, Any]


def read_trial(directory: Path, places: Places) -> Trial | None:
    """None: it has not begun."""
    about = read_plain(directory / "about")
    if about is None:
        return None
    return _Gathering(directory, about, places).trial()


class _Gathering:
    def __init__(self, directory: Path, about: dict[str, Any], places: Places) -> None:
        self.directory = directory
        self.about = about
        self.places = places
        self.workers = worker_notes(directory)
        self.driver: Event = {}
        for event in read_events(directory / "driver.events"):
            self.driver.update(event)
        self.outside = read_plain(directory / "outside", {})
        """What was seen from outside: verdict, stuck, orphans, how the trainer ended."""

    def trial(self) -> Trial:
        deaths = (*self._deaths(), *self._end_of_trainer())
        raised = self._raised(deaths)
        about, driver = self.about, self.driver
        return Trial(
            loader=about["loader"],
            engine=about["engine"],
            workers=about["workers"],
            outcome=self._outcome(deaths, raised),
            is_as_written=about["is_as_written"],
            start_method=about.get("start_method"),
            batches=driver.get("batches", self._batches_shown()),
            samples=driver.get("samples") or self._samples() or self._estimated_samples(),
            seconds=driver.get("last_s") or driver.get("ended") or self.outside.get("seconds", 0.0),
            first_batch_s=driver.get("first_batch_s"),
            is_whole_epoch=driver.get("is_whole_epoch", False),
            epochs=driver.get("passes") or 1,
            raised=raised,
            deaths=deaths,
            stuck=self._stuck(raised),
            orphans=tuple(made_of(Stuck, each) for each in self.outside.get("orphans", ())),
            stderr=self.outside.get("stderr", ""),
            batch_bytes=driver.get("batch_bytes") or None,
            batch_tensors=driver.get("batch_tensors") or None,
            fetch_s=driver.get("fetch_s", self._sum("fetch_s")),
            collate_s=driver.get("collate_s", self._sum("collate_s")),
            lock_share=self.outside.get("lock_share"),
            shutdown_s=driver.get("shutdown_s"),
            slowest=self._slowest(),
            warm_up_s=self._warm_up(),
            memory=tuple(self._memory()),
            trainer_bytes=driver.get("trainer_bytes"),
            non_finite=self._named("non_finite", most=MOST_NOT_FINITE),
            none_samples=self._named("none"),
            swallowed=driver.get("swallowed", {}),
            wrong=tuple(driver.get("wrong", ())),
            originals=driver.get("originals", {}),
            same_draws=self._same_draws(),
            same_seeds=driver.get("same_seeds"),
            same_items=self._same_items(),
            has_asked_for_worker_info=self._has_asked(),
        )

    # --- how it ended

    def _outcome(self, deaths: tuple[Death, ...], raised: Raised | None) -> Outcome:
        if self.outside.get("verdict") in ("hangs", "loops"):
            return Outcome.HANG
        if deaths:
            return Outcome.CRASH
        if "raised" in self.driver:
            return Outcome.ERROR
        expected = self.about.get("batches_expected")
        batches = self.driver.get("batches", 0)
        if self.driver.get("is_whole_epoch"):
            is_short = expected is not None and batches < expected
            return Outcome.SHORT if is_short else Outcome.OK
        return Outcome.OK if batches >= self.about["batches"] else Outcome.SLOW

    def _deaths(self) -> Iterator[Death]:
        notes = {each.pid: each for each in self.workers}
        for worker, pid, exitcode in self.driver.get("exits") or self.outside.get("exits", ()):
            known = notes.get(pid)
            has_left = known is not None and known.state is not None and known.state.stage == "left"
            if exitcode is not None and not (exitcode == 0 and has_left):
                yield self._death(worker, pid, exitcode, known)

    def _death(self, worker: int, pid: int, exitcode: int, notes: WorkerNotes | None) -> Death:
        sample = notes.state.sample if notes and notes.state and notes.state.sample else None
        how, place = _signal_name(exitcode) if exitcode < 0 else "exit", None
        if notes is not None:
            exits = [raised for raised in notes.all("raised") if raised["type"] == "SystemExit"]
            left = next((event for event in notes.events if "exit" in event), None)
            if left is not None:
                how, sample, place = "os._exit", left["sample"], made_of(Place, left["place"])
            elif exits:
                how, sample, place = "sys.exit", exits[-1]["sample"], made_of(Place, exits[-1]["place"])
            else:
                place = crash_place(notes.crash, self.places)
        return Death(
            worker=worker,
            pid=pid,
            exitcode=exitcode,
            sample=sample,
            place=place,
            how=how,
            is_oom=self.outside.get("is_oom"),
            locks_held=tuple(self.driver.get("locks_held", ())),
        )

    def _end_of_trainer(self) -> Iterator[Death]:
        """It ended in the middle of the trial, or would have, and nobody of us had asked it to."""
        if "wanted_to_exit" in self.driver:
            yield Death(
                worker=TRAINER,
                pid=self.about["pid"],
                exitcode=self.driver["wanted_to_exit"],
                sample=self.driver["sample"],
                place=made_of(Place, self.driver["place"]),
                how="sys.exit",
            )
        if "ended" in self.driver or not self.outside.get("trainer_has_ended") or self.outside.get("verdict"):
            return
        state = read_state(self.directory / "driver.state")
        exitcode = self.outside.get("exitcode")
        crash = self.directory.parent / "trainer.crash"
        said = crash.read_text(errors="replace") if crash.exists() else ""
        yield Death(
            worker=TRAINER,
            pid=self.about["pid"],
            exitcode=exitcode,
            sample=state.sample if state and state.sample else None,
            place=crash_place(said, self.places),
            how=_signal_name(exitcode) if exitcode is not None and exitcode < 0 else "exit",
            is_oom=self.outside.get("is_oom"),
        )

    def _raised(self, deaths: tuple[Death, ...]) -> Raised | None:
        by_workers: list[Raised] = [made_of(Raised, each) for notes in self.workers for each in notes.all("raised")]
        failures = [each for each in by_workers if each.type != "SystemExit" and each.stage != "send"]
        lost = next((each for each in by_workers if each.stage == "send"), None)
        seen: Raised | None = made_of(Raised, self.driver.get("raised"))
        if seen is not None and (seen.stage != "receive" or deaths):
            return seen
        if lost is not None and seen is None:
            return self._lost(lost, failures)
        if seen is None:
            return next((each for each in failures if each.type == "StopIteration"), None)
        alike = (each for each in failures if each.type.rpartition(".")[2] == seen.type.rpartition(".")[2])
        is_timeout = "timed out after" in seen.message
        return seen if is_timeout else next(chain(alike, failures), seen)

    def _stuck(self, raised: Raised | None) -> tuple[Stuck, ...]:
        """Of a loader that did not wait long enough: those that it did not wait for."""
        is_impatient = raised is not None and "timed out after" in raised.message
        plain = self.outside.get("long" if is_impatient else "stuck", ())
        return tuple(made_of(Stuck, each) for each in plain)

    def _lost(self, lost: Raised, failures: list[Raised]) -> Raised:
        """Of an exception that could not be sent, the exception is what matters; how it failed to travel is the culprit."""
        original = next((each for each in failures if each.worker == lost.worker), None)
        if not lost.culprit.startswith("the exception ") or original is None:
            return lost
        return replace(original, stage="send", culprit=f"{lost.culprit}: {lost.message}", culprit_at=lost.place)

    # --- what was counted and measured

    def _batches_shown(self) -> int:
        state = read_state(self.directory / "driver.state")
        return state.batches if state else 0

    def _samples(self) -> int:
        return sum(notes.state.samples for notes in self.workers if notes.state)

    def _estimated_samples(self) -> int:
        """Of our engine, whose workers keep no such notes."""
        return int(self.driver.get("batches", 0)) * (self.about.get("batch_size") or 0)

    def _sum(self, key: str) -> float | None:
        values = [notes.last(key) for notes in self.workers]
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    def _slowest(self) -> tuple[SlowSample, ...]:
        told = [
            (event["slow"], event["seconds"]) for notes in self.workers for event in notes.events if "slow" in event
        ] + [(sample, seconds) for sample, seconds in self.driver.get("slow", ())]
        told.sort(key=lambda each: -each[1])
        return tuple(SlowSample(sample=sample, seconds=seconds) for sample, seconds in told[:SLOWEST])

    def _warm_up(self) -> float | None:
        if "warm_up_s" in self.driver:
            return float(self.driver["warm_up_s"])
        more = []
        for notes in self.workers:
            first, total = notes.last("first_s"), notes.last("fetch_s")
            samples = notes.state.samples if notes.state else 0
            if first is not None and total is not None and samples > 1:
                more.append(first - (total - first) / (samples - 1))
        return max(more, default=None)

    def _memory(self) -> Iterator[WorkerMemory]:
        for notes in self.workers:
            measured = [event for event in notes.events if "memory" in event and event["samples"]]
            if len(measured) >= 2:
                first, last = measured[0], measured[-1]
                yield WorkerMemory(
                    worker=notes.worker,
                    first_bytes=first["memory"],
                    last_bytes=last["memory"],
                    samples=last["samples"] - first["samples"],
                )

    def _named(self, key: str, *, most: int = MOST_SAMPLES) -> tuple[str, ...]:
        named = chain(*(notes.all(key) for notes in self.workers), self.driver.get(f"{key}_samples", ()))
        return tuple(dict.fromkeys(named))[:most]

    # --- what workers have in common

    def _same_draws(self) -> tuple[str, ...]:
        """Paths of generators that began alike in several workers, and were alike again when they had been drawn from.

        One that is seeded anew for each sample is not: then it is not alike.
        """
        drawn: Counter[tuple[str, str, str]] = Counter()
        for notes in self.workers:
            began: dict[str, str] = next(notes.all("generators"), {})
            for event in notes.events:
                if event.get("drawn") in began:
                    drawn[event["drawn"], began[event["drawn"]], event["state"]] += 1
        return tuple(dict.fromkeys(path for (path, _, _), count in drawn.items() if count > 1))

    def _same_items(self) -> int | None:
        if not self.about.get("is_iterable") or not self.workers:
            return None
        first = [tuple(items) for notes in self.workers if (items := notes.last("first_items")) and None not in items]
        return max(Counter(first).values(), default=None)

    def _has_asked(self) -> bool | None:
        """Unknown unless every worker got as far as a sample."""
        if any(any(notes.all("has_asked")) for notes in self.workers):
            return True
        return False if self.workers and self._samples() else None


def with_second_epoch(trial: Trial, second: Trial) -> Trial:
    """A trial with what became of the start of another epoch."""
    if second.outcome in (Outcome.HANG, Outcome.CRASH, Outcome.ERROR):
        bad = {name: getattr(second, name) for name in ("outcome", "raised", "deaths", "stuck", "orphans", "stderr")}
        return replace(trial, epochs=2, originals={**trial.originals, **second.originals}, **bad)
    is_empty = trial.batches > 0 and second.is_whole_epoch and not second.batches
    return replace(trial, epochs=2, outcome=Outcome.SHORT if is_empty else trial.outcome)


def _signal_name(exitcode: int) -> str:
    try:
        return signal.Signals(-exitcode).name
    except ValueError:
        return f"signal {-exitcode}"


def crash_place(said: str, places: Places) -> Place | None:
    """The innermost line of the user's in what faulthandler wrote, of the thread that crashed."""
    return places.of_summaries(own_part(current_stack(said)))[1]


def samples_to_blame(trial: Trial) -> tuple[list[str], list[str]]:
    """The samples that failed, and those that a process died or hung at: these may do it again, to whoever asks."""
    failed = [trial.raised.sample] if trial.raised and trial.raised.sample else []
    deadly: Iterable[str | None] = [
        *(death.sample for death in trial.deaths),
        *(stuck.sample for stuck in trial.stuck if stuck.role == "worker" and stuck.stage in ("fetch", "collate")),
    ]
    return failed, list(dict.fromkeys(sample for sample in deadly if sample))
