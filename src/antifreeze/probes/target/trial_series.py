"""The order of an examination inside the target: look at the loaders, then try the one that was to be iterated.

First torch's loader as it is written. If it works, our engine, other numbers of workers and other loaders follow; the
data without workers comes last, for what a dataset opens or keeps in this process later workers would inherit. If it
does not work, the data without workers comes next: it tells most; last what may end this process. All of it happens
here, where the threads of the program are alive, as its next epochs would.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable, Iterator
from multiprocessing import process
from pathlib import Path
from typing import Any

from antifreeze.doctor.facts import Loader, Outcome, Place, Trial
from antifreeze.engine.crossing.walk import walk
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.target.subsets import originals
from antifreeze.probes.target.trial_run import FEW_BATCHES_S, TrialRun
from antifreeze.probes.target.without_workers import WithoutWorkers
from antifreeze.probes.trials import record_files
from antifreeze.probes.trials.records import (
    WRITTEN_S,
    ProbeFault,
    TrialLimits,
    TrialPlan,
)
from antifreeze.probes.trials.trial_facts import contents_of, read_trial, samples_to_blame, seeds_of, with_second_epoch
from antifreeze.torch_side.frames import WORKERS_ITERATOR

# What the end of an examination needs beside its trials.
RESERVE_S = 3.0
# Seconds that are measured without workers; with other numbers of them, and of other loaders.
ALONE_S = 4.0
CURVE_S = 3.0
# Loaders beside the one that is iterated first.
MOST_OTHERS = 4
# What a forked worker has lost for good, if it waits for it.
LOST = ("thread", "loop")
# What our engine may need to help itself out of a hang.
OURS_S = 10.0


class TrialSeries:
    """One examination."""

    def __init__(
        self,
        directory: Path,
        places: PlaceMaker,
        *,
        iterate: Callable[[Any], Iterator[Any]],
        built_at: Callable[[Any], Place | None],
    ) -> None:
        self._directory = directory
        self._places = places
        self._iterate = iterate
        self._built_at = built_at
        self._log = record_files.RecordLog(directory / record_files.LOADERS)
        limits = record_files.read_whole(directory / record_files.LIMITS, TrialLimits)
        assert limits is not None
        self._batches = limits.batches
        self._deadline = limits.deadline - RESERVE_S
        self._number = 0
        self._looked_at: dict[int, Loader] = {}
        self._kept_s = 0.0
        """Of the time that is left, for what must not be missed at the end."""
        self._first: TrialRun
        """Of the loader that is iterated first, as it is written."""
        self._slowest_s = 0.0
        """Of the samples that were fetched in the trainer."""
        self._crash = open(directory / "trainer.crash", "wb", buffering=0)  # noqa: SIM115 - open to the end
        faulthandler.enable(self._crash)
        faulthandler.register(record_files.STACK_SIGNAL, self._crash, all_threads=True, chain=False)
        keep_temporary_files_in(directory / "s")

    def examine(self, loader: Any, *, iterated_at: Place | None, others: list[Any]) -> None:
        others = others[:MOST_OTHERS]
        for number, each in enumerate([loader, *others]):
            self._look_at(each, number, iterated_at if each is loader else None)
        written = self._try_as_written(loader, 0)
        if written.outcome in (Outcome.OK, Outcome.SLOW):
            self._try_what_works(loader, written, others)
        else:
            self._try_what_fails(loader, written)

    def _look_at(self, loader: Any, number: int, iterated_at: Place | None) -> None:
        try:
            from antifreeze.probes.objects import look_at  # noqa: PLC0415 - what it needs is not needed before

            fact = look_at(loader, number=number, built_at=self._built_at(loader), iterated_at=iterated_at)
            self._looked_at[number] = fact
            self._log.write(fact)
        except Exception as fault:  # noqa: BLE001 - the trials tell most, and work without it
            self._log.write(ProbeFault(text=f"look_at: {type(fault).__name__}: {fault}"))

    # --- the trials

    def _try_as_written(self, loader: Any, number: int, *, seconds: float = WRITTEN_S) -> Trial:
        trial_run = self._begin(loader, number, workers=loader.num_workers, is_as_written=True, seconds=seconds)
        if number == 0:
            self._first = trial_run
        trial_run.run(loader, self._iterate)
        self._note_locks(loader, trial_run)
        trial = self._read(trial_run)
        self._note_originals(loader, trial_run, trial)
        if not self._may_begin_again(loader, trial):
            return trial
        second = self._begin_again(loader, number, trial)
        if loader.worker_init_fn is not None and not loader.persistent_workers:
            self._compare_seeds(trial_run, second)
        again = self._read(second)
        self._note_originals(loader, second, again)
        return with_second_epoch(trial, again)

    def _may_begin_again(self, loader: Any, trial: Trial) -> bool:
        """Whether there is time for a second epoch; of a stream, the first must have come to its end, as in the program."""
        if trial.outcome not in (Outcome.OK, Outcome.SLOW) or trial.first_batch_s is None:
            return False
        if self._is_stream(loader) and not trial.is_whole_epoch:
            return False
        again = trial.seconds if loader.persistent_workers else trial.first_batch_s
        return self._has_time(again + FEW_BATCHES_S + ALONE_S + trial.first_batch_s + CURVE_S + OURS_S)

    def _begin_again(self, loader: Any, number: int, first: Trial) -> TrialRun:
        """The start of a second epoch; persistent workers must have seen the first one to its end, too."""
        passes = 2 if loader.persistent_workers else 1
        wishes = {"purpose": "epoch", "passes": passes, "is_first_whole": first.is_whole_epoch}
        second = self._begin(loader, number, workers=loader.num_workers, **wishes)
        second.run(loader, self._iterate)
        return second

    def _compare_seeds(self, first: TrialRun, second: TrialRun) -> None:
        """Whether the generators of the workers start in the second epoch as in the first."""
        before, after = seeds_of(first.directory), seeds_of(second.directory)
        pairs = [(before[worker], after[worker]) for worker in before if worker in after]
        if pairs:
            same = any(one[name] == other[name] for one, other in pairs for name in one if name in other)
            first.later.same_seeds = same
            first.write_later()

    def _try_what_works(self, loader: Any, written: Trial, others: list[Any]) -> None:
        self._kept_s = ALONE_S + (written.first_batch_s or 0.0)
        self._try_others(loader, written)
        for number, each in enumerate(others, start=1):
            if self._has_time((written.first_batch_s or 0.0) + CURVE_S + 5):
                self._try_as_written(each, number, seconds=CURVE_S)
        self._try_alone(loader, failed=[], not_yet=[])

    def _try_what_fails(self, loader: Any, written: Trial) -> None:
        if any(death.locks_held for death in written.deaths):
            return  # these can never be taken again, and a trial would wait for them, too
        failed, deadly = samples_to_blame(written)
        hangs = written.outcome is Outcome.HANG
        if not self._hangs_alone(loader, failed=failed, deadly=deadly, is_deadly_now=hangs):
            self._try_others(loader, written)
        if hangs and deadly and written.epochs == 1 and self._has_time(written.seconds + 4):
            trial_run = self._begin(loader, 0, workers=loader.num_workers, purpose="orphans")
            trial_run.run(loader, self._iterate)
        elif deadly and not hangs:  # the last of all: it may be the end of this process
            self._try_deadly(loader, deadly)

    def _hangs_alone(self, loader: Any, *, failed: list[str], deadly: list[str], is_deadly_now: bool) -> bool:
        """Whether the data itself hangs: then there is no use in trying it in yet other ways."""
        trials = []
        if not deadly or not self._is_stream(loader):
            trials.append(self._try_alone(loader, failed=failed, not_yet=deadly))
        if is_deadly_now and deadly and all(trial.outcome is not Outcome.HANG for trial in trials):
            trials.append(self._try_deadly(loader, deadly))
        return any(trial.outcome is Outcome.HANG for trial in trials)

    def _try_alone(self, loader: Any, *, failed: list[str], not_yet: list[str]) -> Trial:
        trial_run = self._begin(loader, 0, workers=0, engine="torch")
        alone = WithoutWorkers(loader, trial_run, of_workers=contents_of(self._first.directory))
        if not self._is_stream(loader):
            alone.fetch_named(failed)
            alone.load(not_yet=not_yet, seconds=self._seconds(ALONE_S))
        else:
            alone.load_stream(seconds=self._seconds(ALONE_S))
        alone.finish()
        self._slowest_s = alone.slowest_s
        self._first.later.wrong = tuple(alone.wrong)
        self._first.write_later()
        trial = self._read(trial_run)
        self._note_originals(loader, trial_run, trial)
        return trial

    def _try_deadly(self, loader: Any, deadly: list[str]) -> Trial:
        """Fetch these in the trainer, where the watcher may see it die or hang in the same way."""
        if self._is_stream(loader):
            return self._try_alone(loader, failed=[], not_yet=[])
        trial_run = self._begin(loader, 0, workers=0, engine="torch", purpose="deadly")
        alone = WithoutWorkers(loader, trial_run, of_workers={}, slowest_s=self._slowest_s)
        alone.fetch_named(deadly)
        alone.finish()
        return self._read(trial_run)

    def _try_others(self, loader: Any, written: Trial) -> None:
        needed = 2 * (written.first_batch_s or 2.0) + CURVE_S
        if written.engine == "torch" and self._has_time(needed + OURS_S) and not self._is_lost_for_good(written):
            self._try_ours(loader)
        if written.outcome not in (Outcome.OK, Outcome.SLOW) or written.first_batch_s is None:
            return
        count = 1
        while count <= len(os.sched_getaffinity(0)):
            if count != loader.num_workers and self._has_time(needed):
                trial_run = self._begin(loader, 0, workers=count, seconds=CURVE_S)
                wanted, loader.num_workers = loader.num_workers, count
                trial_run.run(loader, self._iterate)
                loader.num_workers = wanted
            count *= 2

    def _is_lost_for_good(self, written: Trial) -> bool:
        """Whether workers wait for a thread that no fork has, of a dataset that crosses to no other process."""
        fact = self._looked_at.get(written.loader)
        if fact is None or fact.crosses is not False or written.outcome is not Outcome.HANG:
            return False
        waits = any(stuck.role == "worker" and stuck.waits_in == "lock" for stuck in written.stuck)
        return waits and any(held.kind in LOST and held.is_deadly for held in fact.held)

    def _try_ours(self, loader: Any) -> None:
        from antifreeze.install import install, uninstall  # noqa: PLC0415 - when torch's own has been tried

        trial_run = self._begin(loader, 0, workers=loader.num_workers, engine="antifreeze", seconds=CURVE_S)
        install()
        try:
            trial_run.run(loader, self._iterate)
        finally:
            uninstall()

    # --- the parts of a trial

    def _begin(self, loader: Any, number: int, *, workers: int, **wishes: Any) -> TrialRun:
        self._number += 1
        wishes = {"engine": engine_of(loader), "batches": self._batches, "prefetch": loader.prefetch_factor, **wishes}
        is_stream = self._is_stream(loader)
        plan = TrialPlan(
            number=self._number,
            loader=number,
            workers=workers,
            start_method=start_method_of(loader) if workers else None,
            is_stream=is_stream,
            batch_size=loader.batch_size or 1,
            batches_expected=None if is_stream or not workers else _length(loader),
            **wishes,
        )
        return TrialRun(plan, directory=self._directory, places=self._places)

    def _read(self, trial_run: TrialRun) -> Trial:
        trial = read_trial(trial_run.directory, self._places)
        assert trial is not None
        return trial

    def _note_locks(self, loader: Any, trial_run: TrialRun) -> None:
        """Note locks of the dataset that cannot be taken although no living process holds them."""
        from multiprocessing.synchronize import Lock, RLock, Semaphore  # noqa: PLC0415 - imports that not every system has

        held = []
        for path, thing in walk({"dataset": loader.dataset}):
            if isinstance(thing, Lock | RLock | Semaphore):
                if thing.acquire(timeout=0.2):
                    thing.release()
                else:
                    held.append(path)
        if held:
            trial_run.later.locks_held = tuple(held)
            trial_run.write_later()

    def _note_originals(self, loader: Any, trial_run: TrialRun, trial: Trial) -> None:
        if found := originals(loader.dataset, trial):
            trial_run.later.originals = found
            trial_run.write_later()

    def _is_stream(self, loader: Any) -> bool:
        from antifreeze.torch_side.loaders import is_stream  # noqa: PLC0415 - torch is there by now

        return is_stream(loader)

    def _has_time(self, seconds: float) -> bool:
        return time.monotonic() + seconds + self._kept_s < self._deadline

    def _seconds(self, wanted: float) -> float:
        return max(1.0, min(wanted, self._deadline - time.monotonic()))


def keep_temporary_files_in(directory: Path) -> None:
    """Put the sockets of multiprocessing, which stay behind when processes are killed, where everything is removed."""
    config: dict[str, Any] = process.current_process()._config  # type: ignore[attr-defined]
    if config.get("tempdir") is None:
        directory.mkdir(mode=0o700)
        config["tempdir"] = str(directory)


def engine_of(loader: Any) -> str:
    """Ours, if the program has asked for it itself."""
    from torch.utils.data import dataloader  # noqa: PLC0415

    kinds = type(loader), getattr(dataloader, WORKERS_ITERATOR)
    return "antifreeze" if any(kind.__module__.startswith("antifreeze.") for kind in kinds) else "torch"


def start_method_of(loader: Any) -> str:
    import torch.multiprocessing  # noqa: PLC0415

    context = loader.multiprocessing_context
    return str((context or torch.multiprocessing).get_start_method())


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 - a sampler of the user's need not have a length
        return None
