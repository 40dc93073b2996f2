"""Runs an unmodified script up to its first batch, has its loader tried there, and watches all of it from outside.

The script runs once, in a session of its own. What happens inside it is the part of `target/`; here it is started,
watched, helped out where it hangs, and ended, with all that it has started. What it wrote down becomes facts.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from antifreeze.doctor.facts import Facts, Loader, Outcome, Raised, Run, Stuck, Trial
from antifreeze.hook import check_hook_reaches_python, interpreter_flags, with_hook
from antifreeze.probes.bounded import TargetProcess, ending_in_order
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.trials import record_files
from antifreeze.probes.trials.monitor import TrialMonitor
from antifreeze.probes.trials.records import ProbeFault, SeenFromOutside, TrialLimits, TrialStart
from antifreeze.probes.trials.stuck_process import runs, stuck_process
from antifreeze.probes.trials.trial_facts import read_trial, with_second_epoch

LOOK_EVERY_S = 0.25
# Short: sockets of the target go below it, and their whole name may have no more than 107 characters (AF906).
PREFIX = "af-"
# Of what a program has written to stderr, the last of it.
MOST_CHARACTERS = 6000
# Of the time that is given; the rest goes into starting, killing what hangs, and telling.
TRIED_SHARE = 0.92


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminationOptions:
    """The limits of an examination."""

    timeout_s: float = 60.0
    """For all of it."""
    batches: int = 50
    """As many make a trial whole, if an epoch takes too long."""


def examine(
    command: Sequence[str], *, options: ExaminationOptions, progress: Callable[[str], None] = lambda said: None
) -> Facts:
    """Run a script with its arguments, or `module:loader`; whatever happens, nothing of it is left."""
    check_hook_reaches_python()
    with (
        ending_in_order(),
        tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name,
    ):
        directory = Path(name)
        began = time.monotonic()
        places = PlaceMaker(base=_base_of(command), cwd=os.getcwd())
        record_files.write_whole(directory / record_files.PLACES, places)
        limits = TrialLimits(batches=options.batches, deadline=began + TRIED_SHARE * options.timeout_s)
        record_files.write_whole(directory / record_files.LIMITS, limits)
        environ = {**with_hook(os.environ), record_files.EXAMINE: name}
        outputs = {"stdout": directory / "stdout", "stderr": directory / record_files.STDERR}
        with TargetProcess(_python(command), environ=environ, mark=record_files.EXAMINE, **outputs) as target:
            return _Examination(command, target, directory, places, began, options, progress).facts()


def _python(command: Sequence[str]) -> list[str]:
    if _is_loader_name(command[0]):
        return [sys.executable, *interpreter_flags(), "-m", "antifreeze.probes.target.named", *command]
    return [sys.executable, *interpreter_flags(), *command]


def _is_loader_name(word: str) -> bool:
    return ":" in word and not Path(word).exists()


def _base_of(command: Sequence[str]) -> str:
    return os.getcwd() if _is_loader_name(command[0]) else os.path.dirname(os.path.abspath(command[0]))


class _Examination:
    """One target, from its start to its facts."""

    def __init__(
        self,
        command: Sequence[str],
        target: TargetProcess,
        directory: Path,
        places: PlaceMaker,
        began: float,
        options: ExaminationOptions,
        progress: Callable[[str], None],
    ) -> None:
        self._command = command
        self._target = target
        self._directory = directory
        self._places = places
        self._began = began
        self._deadline = began + TRIED_SHARE * options.timeout_s
        self._progress = progress
        self._claimed: float | None = None
        self._trainer: int | None = None
        self._monitor: TrialMonitor | None = None
        self._stuck: tuple[Stuck, ...] = ()

    def facts(self) -> Facts:
        self._progress("starting the script")
        while time.monotonic() < self._deadline and not self._is_over():
            self._look()
            time.sleep(LOOK_EVERY_S)
        if self._claimed is None and self._target.exit_status() is None:
            self._stuck = tuple(stuck_process(self._target.pid, role="trainer", places=self._places))
        self._turn_to_the_newest()
        if self._monitor is not None:
            self._monitor.give_up()
            self._monitor.conclude(exitcode=self._exitcode())
        return Facts(run=self._run(), loaders=self._loaders(), trials=self._trials())

    def _is_over(self) -> bool:
        if (self._directory / record_files.DONE).exists():
            return True
        if self._trainer is not None:
            return not runs(self._trainer)
        return self._target.exit_status() is not None

    def _look(self) -> None:
        if self._trainer is None:
            self._find_trainer()
            return
        self._turn_to_the_newest()
        if self._monitor is not None:
            self._monitor.look()

    def _turn_to_the_newest(self) -> None:
        newest = max(self._directory.glob(f"t[0-9]*/{record_files.ABOUT}"), default=None)
        if newest is None or (self._monitor is not None and self._monitor.directory == newest.parent):
            return
        if self._monitor is not None:
            self._monitor.conclude()
        self._monitor = TrialMonitor(newest.parent, self._target, self._places)
        self._progress(self._monitor.title)

    def _find_trainer(self) -> None:
        claim = self._directory / record_files.CLAIM
        text = claim.read_text() if claim.exists() else ""
        if text.isdigit():
            self._trainer, self._claimed = int(text), time.monotonic()
            self._progress("looking at the loader")

    def _exitcode(self) -> int | None:
        """Of the trainer, if it has ended in the middle; only that of the script itself is ours to know."""
        return self._target.exit_status() if self._trainer == self._target.pid else None

    # --- what has been found

    def _run(self) -> Run:
        status = self._target.exit_status()
        has_seen = any((self._directory / name).exists() for name in record_files.SEEN_LOADERS)
        return Run(
            command=" ".join(self._command),
            outcome=self._outcome(status),
            reached_a_loader=has_seen,
            is_trainer_a_child=None if self._trainer is None else self._trainer != self._target.pid,
            exitcode=None if self._claimed else status,
            seconds=(self._claimed or time.monotonic()) - self._began,
            raised=None
            if self._claimed
            else record_files.read_whole(self._directory / record_files.SCRIPT_RAISED, Raised),
            stuck=self._stuck,
            stderr=tail(self._directory / record_files.STDERR),
            fault=self._fault(),
        )

    def _outcome(self, status: int | None) -> Outcome:
        if self._claimed is not None:
            return Outcome.OK
        if status is None:
            return Outcome.HANG if self._stuck and self._stuck[0].cpu_share < 0.05 else Outcome.SLOW
        if status < 0:
            return Outcome.CRASH
        return Outcome.ERROR if status else Outcome.OK

    def _fault(self) -> str:
        faults = [
            fault.text for fault in record_files.LogRecords(self._directory / record_files.LOADERS).all(ProbeFault)
        ]
        return "\n".join([*faults, tail(self._directory / record_files.FAULT)]).strip()

    def _loaders(self) -> tuple[Loader, ...]:
        return tuple(record_files.LogRecords(self._directory / record_files.LOADERS).all(Loader))

    def _trials(self) -> tuple[Trial, ...]:
        found: list[Trial] = []
        for directory in sorted(self._directory.glob("t[0-9]*")):
            start = record_files.read_whole(directory / record_files.ABOUT, TrialStart)
            trial = read_trial(directory, self._places)
            seen = record_files.read_whole(directory / record_files.OUTSIDE, SeenFromOutside)
            if start is None or trial is None or (seen and seen.is_cut_short and not trial.is_as_written):
                continue  # it tells nothing
            if start.plan.purpose == "trial":
                found.append(trial)
            else:
                found = [_with(each, trial, start.plan.purpose) for each in found]
        return tuple(found)


def _with(trial: Trial, more: Trial, purpose: str) -> Trial:
    """A trial with what was seen later, on another occasion, of the same loader."""
    if trial.loader != more.loader:
        return trial
    if purpose == "epoch" and trial.is_as_written:
        return with_second_epoch(trial, more)
    if purpose == "orphans" and trial.is_as_written:
        return replace(trial, orphans=more.orphans)
    if purpose == "deadly" and trial.workers == 0 and more.outcome in (Outcome.HANG, Outcome.CRASH, Outcome.ERROR):
        return replace(trial, outcome=more.outcome, raised=more.raised, deaths=more.deaths, stuck=more.stuck)
    return trial


def tail(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[-MOST_CHARACTERS:]
    except OSError:
        return ""
