"""What one of torch's workers writes down: at which sample it is, what it found in it, what went wrong.

It must cost little beside what it watches: contents are compared for some seconds of work only, and memory is measured as
often as a small share of the time allows.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from antifreeze.doctor.facts import SlowSample
from antifreeze.machine import private_bytes
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.target.content import content_of
from antifreeze.probes.target.failures import raised_fact
from antifreeze.probes.target.generators import global_states, held_generators
from antifreeze.probes.trials import records
from antifreeze.probes.trials.record_files import STACK_SIGNAL, RecordLog, StateFile, WorkerFiles, short

# All that comparing contents may take in one worker.
CONTENT_S = 1.0
MOST_CONTENTS = 5000
# A sample is slow, and told of, if it takes this long.
SLOW_S = 0.05
MOST_SLOW = 200
MEMORY_SHARE = 0.02
FIRST_ITEMS = 3


class WorkerLog:
    """Of one worker."""

    def __init__(self, directory: Path, worker: int, places: PlaceMaker) -> None:
        self.worker = worker
        self.places = places
        self.sample = ""
        self.batch: list[Any] = []
        """The indices of the batch that is being made."""
        files = WorkerFiles.of(directory, worker, os.getpid())
        self._state = StateFile(files.state)
        self._log = RecordLog(files.log)
        self._crash = files.crash.open("wb", buffering=0)  # open as long as the process lives
        self._stage = "init"
        self._totals = records.FetchTotals()
        self._batches = self._slow = 0
        self._began = 0.0
        self._contents: dict[str, int] = {}
        self._content_s = 0.0
        self._compared = 0
        self._first_items: list[int | None] = []
        self._has_asked = False
        self._generators: dict[str, tuple[Callable[[], str], str]] = {}
        self._measured = self._measuring_s = 0.0
        self._show()

    @property
    def is_at_work(self) -> bool:
        return self._stage in ("init", "fetch", "collate")

    def write(self, record: records.WorkerRecord) -> None:
        self._log.write(record)

    def catch_crashes(self) -> None:
        with contextlib.suppress(Exception):  # a process without it is examined all the same
            faulthandler.enable(self._crash)
            faulthandler.register(STACK_SIGNAL, self._crash, all_threads=True, chain=False)

    # --- samples

    def begin_sample(self, index: Any) -> None:
        if self._stage != "fetch":
            self.batch = []
        self._stage = "fetch"
        self.sample = short(index)
        self._began = time.monotonic()
        self._show()

    def end_sample(self, index: Any, sample: Any) -> None:
        seconds = time.monotonic() - self._began
        self._totals.add(seconds)
        self.batch.append(index)
        if seconds > SLOW_S and self._slow < MOST_SLOW:
            self._slow += 1
            self._log.write(SlowSample(sample=short(index), seconds=seconds))
        if sample is None:
            self._log.write(records.NoneSample(sample=short(index)))
        if self._content_s < CONTENT_S and self._compared < MOST_CONTENTS:
            self._compare(index, sample)
        self._note_draws()

    def _compare(self, index: Any, sample: Any) -> None:
        began = time.monotonic()
        content = content_of(sample)
        self._compared += 1
        self._content_s += time.monotonic() - began
        if content.digest is not None:
            self._contents[short(index)] = content.digest
        if not content.is_finite:
            self._log.write(records.NonFiniteSample(sample=short(index)))
        if len(self._first_items) < FIRST_ITEMS:
            self._first_items.append(content.digest)
            self._log.write(records.FirstItems(digests=tuple(self._first_items)))

    def end_stream(self) -> None:
        self._stage = "idle"
        self._flush()
        self._show()

    # --- batches

    def begin_collate(self) -> None:
        self._stage = "collate"
        self._began = time.monotonic()
        self._show()

    def end_batch(self) -> None:
        self._totals.collate_s += time.monotonic() - self._began
        self._batches += 1
        self._stage = "idle"
        self._flush()
        self._show()

    def _flush(self) -> None:
        now = time.monotonic()
        if now - self._measured > self._measuring_s / MEMORY_SHARE:
            self._measure()
        self._log.write(self._totals)
        if self._contents:
            self._log.write(records.SampleContents(digests=self._contents))
        self._contents = {}

    def _measure(self) -> None:
        began = time.monotonic()
        amount = private_bytes()
        self._measured = time.monotonic()
        self._measuring_s = self._measured - began
        if amount is not None:
            self._log.write(records.PrivateMemory(amount_bytes=amount, samples=self._totals.samples))

    def leave(self) -> None:
        self._flush()
        self._measure()
        self._stage = "left"
        self._show()

    # --- what goes wrong, and what is found

    def note_failure(
        self,
        error: BaseException,
        *,
        stage: str,
        sample: str | None = None,
        batch: tuple[str, ...] = (),
        culprit: str = "",
        swallowed: str = "",
    ) -> None:
        fact = raised_fact(
            error,
            stage=stage,
            places=self.places,
            worker=self.worker,
            sample=sample,
            batch=batch,
            culprit=culprit,
            swallowed=swallowed,
        )
        self._log.write(fact)
        self._stage = "idle"
        self._show()

    def note_worker_info(self) -> None:
        if not self._has_asked:
            self._has_asked = True
            self._log.write(records.AskedForWorkerInfo())

    def note_generators(self, dataset: Any) -> None:
        with contextlib.suppress(Exception):  # of objects of the user's, that may be strange
            self._generators = {path: (state, state()) for path, state in held_generators(dataset).items()}
            before = {path: state for path, (_, state) in self._generators.items()}
            self._log.write(records.GeneratorsAtStart(process=global_states(), held=before))

    def _note_draws(self) -> None:
        """Which of the held generators have been drawn from, and to where that has brought them."""
        states = {path: (state(), before) for path, (state, before) in self._generators.items()}
        for path, (now, before) in states.items():
            if now != before:
                del self._generators[path]
                self._log.write(records.GeneratorDrawn(path=path, state=now))
        if self._totals.samples > 64:
            self._generators = {}

    def _show(self) -> None:
        self._state.write(
            self._stage,
            samples=self._totals.samples,
            batches=self._batches,
            slowest_s=self._totals.slowest_s,
            sample=self.sample if self._stage == "fetch" else "",
        )
