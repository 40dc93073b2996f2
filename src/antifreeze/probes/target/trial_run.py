"""One trial: iterate a loader until its epoch ends, its time is over, or something happens; then end its workers.

The watcher ends a trial from outside with a signal, which raises `TrialEnded` wherever the main thread is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from antifreeze.machine import private_bytes
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.target.content import tensors_of
from antifreeze.probes.target.failures import raised_fact
from antifreeze.probes.target.workers import WatchedLoop
from antifreeze.probes.trials import record_files, records
from antifreeze.torch_side.frames import NEXT_INDEX, SHUT_DOWN

# What is looked at of a second epoch: what breaks there, breaks at its beginning.
FEW_BATCHES = 4
FEW_BATCHES_S = 2.0
# How long the first batch may take while something works.
FIRST_BATCH_S = 20.0
# A training step, during which workers get ahead.
STEP_S = 1.0
# The end of a worker is felt in the trainer before the worker is quite dead.
DEATH_S = 0.5
# All the more so if what was felt is a connection that has ended.
CUT_OFF_S = 3.0


class TrialEnded(BaseException):
    """The trial has been ended from outside."""


_is_under_way = False


def end_trial(signum: int, frame: Any) -> None:
    if _is_under_way:  # else the signal was late, and there is nothing to end
        raise TrialEnded


def hush_dead_workers() -> None:
    """Once a worker has died, torch raises wherever the trainer is whenever another one ends: not any more."""
    from antifreeze.torch_side.workers import forget_death_signal  # noqa: PLC0415 - torch is there by now

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        forget_death_signal()


class TrialRun:
    """A trial under way."""

    def __init__(self, plan: records.TrialPlan, *, directory: Path, places: PlaceMaker) -> None:
        self.plan = plan
        self.directory = directory / plan.name
        self.directory.mkdir(mode=0o700)
        self.places = places
        self.log = record_files.RecordLog(record_files.trainer_log(self.directory))
        self.state = record_files.StateFile(record_files.trainer_state(self.directory))
        self.began = time.monotonic()
        self.progress = records.TrialProgress()
        self.later = records.FoundLater()
        self._pass_began = self.began
        self._error: BaseException | None = None
        global _is_under_way
        _is_under_way = True
        can_end = threading.current_thread() is threading.main_thread()
        if can_end:
            signal.signal(record_files.END_SIGNAL, end_trial)
        self.show("start")
        start = records.TrialStart(plan=plan, pid=os.getpid(), can_end=can_end, began=self.began)
        record_files.write_whole(self.directory / record_files.ABOUT, start)

    def show(self, stage: str, totals: records.FetchTotals | None = None, *, sample: str = "") -> None:
        """What the trainer is at, and what it has fetched itself."""
        samples, slowest_s = (totals.samples, totals.slowest_s) if totals else (0, 0.0)
        self.state.write(stage, samples=samples, batches=self.progress.batches, slowest_s=slowest_s, sample=sample)

    def now_s(self) -> float:
        """Since the trial began."""
        return time.monotonic() - self.began

    def run(self, loader: Any, iterate: Callable[[Any], Iterator[Any]]) -> None:
        """Iterate; an exception of the program's is noted, and none is raised."""
        watched = WatchedLoop(self.directory, self.places)
        watched.put_in()
        iterator: Any = None
        try:
            try:
                for _ in range(self.plan.passes):
                    self._begin_pass()
                    iterator = iterate(loader)
                    self._take_batches(iterator)
            except TrialEnded:
                self.progress.is_ended = True
            except BaseException as error:  # noqa: BLE001 - whatever the program raises is a fact
                hush_dead_workers()
                self._note_failure(error, has_started=iterator is not None)
            self.log.write(records.BeforeShutdown(workers=self._exits(iterator), trainer_bytes=private_bytes()))
            self._shut_down(iterator)
        except TrialEnded:  # it was late, and ends the shutdown
            self.progress.is_ended = True
        finally:
            from antifreeze.torch_side.loaders import forget_iterator  # noqa: PLC0415 - torch is there by now

            watched.take_out()
            with contextlib.suppress(Exception):
                forget_iterator(loader)
            self.finish()

    def _begin_pass(self) -> None:
        self._pass_began = time.monotonic()
        self.progress.passes += 1
        self.progress.batches, self.progress.is_whole_epoch = 0, False

    def _take_batches(self, iterator: Iterator[Any]) -> None:
        progress = self.progress
        while not self._is_enough():
            self.show("next")
            try:
                batch = next(iterator)
            except StopIteration:
                progress.is_whole_epoch = True
                return
            self.count(batch)
            if progress.batches == 1 and self._may_fill_shared_memory():
                time.sleep(STEP_S)
            del batch

    def count(self, batch: Any) -> None:
        """One more batch; only the first ones are measured."""
        progress = self.progress
        progress.batches += 1
        progress.last_s = self.now_s()
        if progress.first_batch_s is None:
            progress.first_batch_s = progress.last_s
        if progress.batches <= self.plan.batches:
            sizes = [tensor.element_size() * tensor.nelement() for tensor in tensors_of(batch)]
            progress.batch_bytes = max(progress.batch_bytes, sum(sizes))
            progress.batch_tensors = max(progress.batch_tensors, len(sizes))

    def _may_fill_shared_memory(self) -> bool:
        """Whether the batches that workers make while the trainer is at a step are much, for what there is."""
        under_way = self.progress.batch_bytes * self.plan.workers * (self.plan.prefetch or 2)
        return self.plan.is_as_written and under_way > shutil.disk_usage("/dev/shm").free / 2

    def _is_enough(self) -> bool:
        first_batch_s, now = self.progress.first_batch_s, self.now_s()
        if self.plan.purpose == "epoch":
            return self._is_enough_of_an_epoch()
        if first_batch_s is None:
            return now > FIRST_BATCH_S
        return now - first_batch_s > self.plan.seconds

    def _is_enough_of_an_epoch(self) -> bool:
        progress = self.progress
        if progress.passes < self.plan.passes and self.plan.is_first_whole:
            return False
        is_long = progress.batches > 0 and time.monotonic() - self._pass_began > FEW_BATCHES_S
        return is_long or progress.batches >= FEW_BATCHES

    def _note_failure(self, error: BaseException, *, has_started: bool) -> None:
        self._error = error
        fact = raised_fact(error, stage="receive", places=self.places)
        functions = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
        if NEXT_INDEX in functions:
            stage = "sampler"
        elif not has_started:
            stage = "start"
        else:
            stage = "receive"
        self.log.write(replace(fact, stage=stage))

    def _exits(self, iterator: Any) -> tuple[records.WorkerExit, ...]:
        """Which workers of torch's have ended, before anybody asked them to."""
        workers = getattr(iterator, "_workers", None)
        if not isinstance(workers, list) or self.plan.engine != "torch":
            return ()
        if self._error is not None:
            self._wait_for_the_dying(workers)
        return tuple(
            records.WorkerExit(worker=n, pid=each.pid, exitcode=each.exitcode) for n, each in enumerate(workers)
        )

    def _wait_for_the_dying(self, workers: list[Any]) -> None:
        is_cut_off = isinstance(self._error, OSError | EOFError)
        dying = connection.wait([each.sentinel for each in workers], timeout=CUT_OFF_S if is_cut_off else DEATH_S)
        for each in workers:
            if each.sentinel in dying:
                each.join(DEATH_S)

    def _shut_down(self, iterator: Any) -> None:
        shut_down = getattr(iterator, SHUT_DOWN, None)
        if shut_down is None:
            return
        self.show("shutdown")
        began, said = time.monotonic(), ""
        try:
            shut_down()
        except TrialEnded:
            raise
        except BaseException as error:  # noqa: BLE001 - workers that died make torch raise here once more
            said = repr(error)
        self.log.write(records.LoaderShutdown(seconds=time.monotonic() - began, error=said))

    def finish(self) -> None:
        global _is_under_way
        _is_under_way = False
        self.progress.seconds = self.now_s()
        self.log.write(self.progress)
        self.show("ended")
        self.state.close()
        self.log.close()

    def write_later(self) -> None:
        """Once more all that is in `later`."""
        record_files.add_record(record_files.trainer_log(self.directory), self.later)
