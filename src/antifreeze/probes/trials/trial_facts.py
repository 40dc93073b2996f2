"""What the processes of a trial have written into its directory → the fact `Trial`."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from antifreeze.doctor.facts import Death, Outcome, Place, Raised, SlowSample, Stuck, Trial, WorkerMemory
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.processes.classify_stack import own_frames
from antifreeze.probes.trials import record_files, records
from antifreeze.probes.trials.hang_detector import TrialVerdict
from antifreeze.probes.trials.stuck_process import current_stack

MOST_SAMPLES = 50
# More of these: how many there are tells a fault from what is meant.
MOST_NOT_FINITE = 1000
SLOWEST = 5
TRAINER = -1
"""In the place of a worker's number, where the trainer itself has ended."""


class _WorkerNotes:
    """What one worker process has written."""

    def __init__(self, files: record_files.WorkerFiles) -> None:
        self.worker = files.worker
        self.pid = files.pid
        self.state: records.ProcessState | None = record_files.read_state(files.state)
        self.records = record_files.LogRecords(files.log)
        self.crash = _text(files.crash)


def read_trial(directory: Path, places: PlaceMaker) -> Trial | None:
    """None: it has not begun."""
    start = record_files.read_whole(directory / record_files.ABOUT, records.TrialStart)
    return None if start is None else _TrialReader(directory, start, places).trial()


def contents_of(directory: Path) -> dict[str, dict[int, int]]:
    """Sample → worker → what it held there, as a number to compare by."""
    found: dict[str, dict[int, int]] = {}
    for files in record_files.worker_files(directory):
        for contents in record_files.LogRecords(files.log).all(records.SampleContents):
            for sample, digest in contents.digests.items():
                found.setdefault(sample, {})[files.worker] = digest
    return found


def seeds_of(directory: Path) -> dict[int, Mapping[str, str]]:
    """Worker → the states in which the global generators started there."""
    generators = (
        (files.worker, record_files.LogRecords(files.log).last(records.GeneratorsAtStart))
        for files in record_files.worker_files(directory)
    )
    return {worker: found.process for worker, found in generators if found is not None}


class _TrialReader:
    def __init__(self, directory: Path, start: records.TrialStart, places: PlaceMaker) -> None:
        self.directory = directory
        self.start = start
        self.plan = start.plan
        self.places = places
        self.workers = [_WorkerNotes(files) for files in record_files.worker_files(directory)]
        self.trainer = record_files.LogRecords(record_files.trainer_log(directory))
        self.end = self.trainer.last(records.TrialProgress)
        """None: the trainer did not get so far."""
        self.logs = [*(notes.records for notes in self.workers), self.trainer]
        self.totals = [totals for log in self.logs if (totals := log.last(records.FetchTotals))]
        """Of those that fetched."""
        self.later = self.trainer.last(records.FoundLater) or records.FoundLater()
        self.outside = (
            record_files.read_whole(directory / record_files.OUTSIDE, records.SeenFromOutside)
            or records.SeenFromOutside()
        )

    def trial(self) -> Trial:
        deaths = (*self._deaths(), *self._end_of_trainer())
        raised = self._raised(deaths)
        plan, end, later, outside = self.plan, self.end, self.later, self.outside
        before, shutdown = self.trainer.last(records.BeforeShutdown), self.trainer.last(records.LoaderShutdown)
        return Trial(
            loader=plan.loader,
            engine=plan.engine,
            workers=plan.workers,
            outcome=self._outcome(deaths, raised),
            is_as_written=plan.is_as_written,
            start_method=plan.start_method,
            batches=end.batches if end else self._batches_shown(),
            samples=self._samples() or self._estimated_samples(),
            seconds=(end and (end.last_s or end.seconds)) or outside.seconds or 0.0,
            first_batch_s=end.first_batch_s if end else None,
            is_whole_epoch=end is not None and end.is_whole_epoch,
            epochs=(end.passes if end else 0) or 1,
            raised=raised,
            deaths=deaths,
            stuck=self._stuck(raised),
            orphans=outside.orphans,
            stderr=outside.stderr,
            batch_bytes=(end and end.batch_bytes) or None,
            batch_tensors=(end and end.batch_tensors) or None,
            fetch_s=sum(each.fetch_s for each in self.totals) if self.totals else None,
            collate_s=sum(each.collate_s for each in self.totals) if self.totals else None,
            lock_share=outside.lock_share,
            shutdown_s=shutdown.seconds if shutdown else None,
            slowest=tuple(slowest(chain(*(log.all(SlowSample) for log in self.logs)))),
            warm_up_s=max((each.warm_up_s for each in self.totals if each.warm_up_s is not None), default=None),
            memory=tuple(self._memory()),
            trainer_bytes=before.trainer_bytes if before else None,
            non_finite=self._named(records.NonFiniteSample, most=MOST_NOT_FINITE),
            none_samples=self._named(records.NoneSample),
            swallowed=later.swallowed,
            wrong=later.wrong,
            originals=later.originals,
            same_draws=self._same_draws(),
            same_seeds=later.same_seeds,
            same_items=self._same_items(),
            has_asked_for_worker_info=self._has_asked(),
        )

    # --- how it ended

    def _outcome(self, deaths: tuple[Death, ...], raised: Raised | None) -> Outcome:
        if self.outside.verdict in (TrialVerdict.HANGS, TrialVerdict.LOOPS):
            return Outcome.HANG
        if deaths:
            return Outcome.CRASH
        if self.trainer.last(Raised) is not None:
            return Outcome.ERROR
        expected = self.plan.batches_expected
        batches = self.end.batches if self.end else 0
        if self.end is not None and self.end.is_whole_epoch:
            is_short = expected is not None and batches < expected
            return Outcome.SHORT if is_short else Outcome.OK
        return Outcome.OK if batches >= self.plan.batches else Outcome.SLOW

    def _deaths(self) -> Iterator[Death]:
        notes = {each.pid: each for each in self.workers}
        before = self.trainer.last(records.BeforeShutdown)
        for exit_ in before.workers if before else ():
            known = notes.get(exit_.pid)
            has_left = known is not None and known.state is not None and known.state.stage == "left"
            if exit_.exitcode is not None and not (exit_.exitcode == 0 and has_left):
                yield self._death(exit_.worker, exit_.pid, exit_.exitcode, known)

    def _death(self, worker: int, pid: int, exitcode: int, notes: _WorkerNotes | None) -> Death:
        sample = notes.state.sample if notes and notes.state and notes.state.sample else None
        how, place = _signal_name(exitcode) if exitcode < 0 else "exit", None
        if notes is not None:
            exits = [raised for raised in notes.records.all(Raised) if raised.type == "SystemExit"]
            left = next(notes.records.all(records.ProcessExit), None)
            if left is not None:
                how, sample, place = left.how, left.sample, left.place
            elif exits:
                how, sample, place = "sys.exit", exits[-1].sample, exits[-1].place
            else:
                place = crash_place(notes.crash, self.places)
        return Death(
            worker=worker,
            pid=pid,
            exitcode=exitcode,
            sample=sample,
            place=place,
            how=how,
            is_oom=self.outside.is_oom,
            locks_held=self.later.locks_held,
        )

    def _end_of_trainer(self) -> Iterator[Death]:
        """The trainer ended in the middle of the trial, or would have, and we had not asked it to."""
        wanted = self.trainer.last(records.ProcessExit)
        if wanted is not None:
            yield Death(
                worker=TRAINER,
                pid=self.start.pid,
                exitcode=wanted.status,
                sample=wanted.sample,
                place=wanted.place,
                how=wanted.how,
            )
        if self.end is not None or not self.outside.has_trainer_ended or self.outside.verdict:
            return
        state = record_files.read_state(record_files.trainer_state(self.directory))
        exitcode = self.outside.exitcode
        yield Death(
            worker=TRAINER,
            pid=self.start.pid,
            exitcode=exitcode,
            sample=state.sample if state and state.sample else None,
            place=crash_place(_text(record_files.trainer_crash(self.directory)), self.places),
            how=_signal_name(exitcode) if exitcode is not None and exitcode < 0 else "exit",
            is_oom=self.outside.is_oom,
        )

    def _raised(self, deaths: tuple[Death, ...]) -> Raised | None:
        by_workers = [raised for notes in self.workers for raised in notes.records.all(Raised)]
        failures = [each for each in by_workers if each.type != "SystemExit"]
        unsent = (each.raised for notes in self.workers for each in notes.records.all(records.UnsentResult))
        lost = next(unsent, None)
        seen = self.trainer.last(Raised)
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
        return self.outside.long if is_impatient else self.outside.stuck

    def _lost(self, lost: Raised, failures: list[Raised]) -> Raised:
        """Of an exception that could not be sent, the exception is what matters; how it failed to travel is the culprit."""
        original = next((each for each in failures if each.worker == lost.worker), None)
        if not lost.culprit.startswith("the exception ") or original is None:
            return lost
        return replace(original, stage="send", culprit=f"{lost.culprit}: {lost.message}", culprit_at=lost.place)

    # --- what was counted and measured

    def _batches_shown(self) -> int:
        state = record_files.read_state(record_files.trainer_state(self.directory))
        return state.batches if state else 0

    def _samples(self) -> int:
        fetched = self.trainer.last(records.FetchTotals)
        return fetched.samples if fetched else sum(notes.state.samples for notes in self.workers if notes.state)

    def _estimated_samples(self) -> int:
        """Of our engine, whose workers keep no such notes."""
        return (self.end.batches if self.end else 0) * self.plan.batch_size

    def _memory(self) -> Iterator[WorkerMemory]:
        for notes in self.workers:
            measured = [each for each in notes.records.all(records.PrivateMemory) if each.samples]
            if len(measured) >= 2:
                first, last = measured[0], measured[-1]
                yield WorkerMemory(
                    worker=notes.worker,
                    first_bytes=first.amount_bytes,
                    last_bytes=last.amount_bytes,
                    samples=last.samples - first.samples,
                )

    def _named(
        self, kind: type[records.NoneSample | records.NonFiniteSample], *, most: int = MOST_SAMPLES
    ) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.sample for log in self.logs for each in log.all(kind)))[:most]

    # --- what workers have in common

    def _same_draws(self) -> tuple[str, ...]:
        """Paths of generators that began alike in several workers, and were alike again when they had been drawn from.

        One that is seeded anew for each sample is not: then it is not alike.
        """
        drawn: Counter[tuple[str, str, str]] = Counter()
        for notes in self.workers:
            generators = notes.records.last(records.GeneratorsAtStart)
            began = generators.held if generators else {}
            for each in notes.records.all(records.GeneratorDrawn):
                if each.path in began:
                    drawn[each.path, began[each.path], each.state] += 1
        return tuple(dict.fromkeys(path for (path, _, _), count in drawn.items() if count > 1))

    def _same_items(self) -> int | None:
        if not self.plan.is_stream or not self.workers:
            return None
        known = (items.digests for notes in self.workers if (items := notes.records.last(records.FirstItems)))
        first = [digests for digests in known if None not in digests]
        return max(Counter(first).values(), default=None)

    def _has_asked(self) -> bool | None:
        """Unknown unless every worker got as far as a sample."""
        if any(notes.records.last(records.AskedForWorkerInfo) for notes in self.workers):
            return True
        return False if self.workers and self._samples() else None


def with_second_epoch(trial: Trial, second: Trial) -> Trial:
    """A trial with what became of the start of another epoch."""
    if second.outcome in (Outcome.HANG, Outcome.CRASH, Outcome.ERROR):
        bad = {name: getattr(second, name) for name in ("outcome", "raised", "deaths", "stuck", "orphans", "stderr")}
        return replace(trial, epochs=2, originals={**trial.originals, **second.originals}, **bad)
    is_empty = trial.batches > 0 and second.is_whole_epoch and not second.batches
    return replace(trial, epochs=2, outcome=Outcome.SHORT if is_empty else trial.outcome)


def slowest(samples: Iterable[SlowSample]) -> list[SlowSample]:
    """The first few, the slowest first."""
    return sorted(samples, key=lambda each: -each.seconds)[:SLOWEST]


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _signal_name(exitcode: int) -> str:
    try:
        return signal.Signals(-exitcode).name
    except ValueError:
        return f"signal {-exitcode}"


def crash_place(said: str, places: PlaceMaker) -> Place | None:
    """The innermost line of the user's in what faulthandler wrote, of the thread that crashed."""
    return places.of_frames(own_frames(current_stack(said)))[1]


def samples_to_blame(trial: Trial) -> tuple[list[str], list[str]]:
    """The samples that failed, and those that a process died or hung at: these may do it again, in any process."""
    failed = [trial.raised.sample] if trial.raised and trial.raised.sample else []
    deadly: Iterable[str | None] = [
        *(death.sample for death in trial.deaths),
        *(stuck.sample for stuck in trial.stuck if stuck.role == "worker" and stuck.stage in ("fetch", "collate")),
    ]
    return failed, list(dict.fromkeys(sample for sample in deadly if sample))
