"""The trial without workers, in the trainer itself: does the data come without other processes, and is it the same?

Samples that a worker died of or hung at are kept for the end, when there is nothing left to lose.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from antifreeze.doctor.facts import SlowSample
from antifreeze.engine.worker.retrace import retrace
from antifreeze.probes.target.content import content_of
from antifreeze.probes.target.failures import raised_fact
from antifreeze.probes.target.generators import global_states
from antifreeze.probes.target.trial_run import TrialEnded, TrialRun
from antifreeze.probes.trials.record_files import short
from antifreeze.probes.trials.records import FetchTotals, NoneSample, NonFiniteSample, ProcessExit
from antifreeze.probes.trials.trial_facts import MOST_NOT_FINITE, slowest
from antifreeze.torch_side.loaders import auto_collates, index_sampler

MOST_NAMED = 50
MOST_RETRACED = 3
# Samples that the workers had otherwise are fetched again; if so many differ from fetch to fetch, samples are random.
MOST_RANDOM = 10
REPEATS = 3


@dataclass(slots=True)
class Fetched:
    """What fetching in the trainer has shown."""

    totals: FetchTotals
    slow: list[SlowSample] = field(default_factory=list)
    none: dict[str, Any] = field(default_factory=dict)
    non_finite: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    contents: dict[str, int] = field(default_factory=dict)


class WithoutWorkers:
    """Fetches and collates in this very process."""

    def __init__(
        self, loader: Any, trial_run: TrialRun, *, of_workers: Mapping[str, Mapping[int, int]], slowest_s: float = 0.0
    ) -> None:
        self._loader = loader
        self._dataset = loader.dataset
        self._trial_run = trial_run
        self._of_workers = of_workers
        self._seen = Fetched(totals=FetchTotals(slowest_s=slowest_s))
        self._deadline = 0.0
        self._indices: dict[str, Any] = {}
        self._has_failed = False

    # --- samples of a map-style dataset

    def load(self, *, not_yet: Sequence[str], seconds: float) -> None:
        """Batches in the order of the sampler until the time is over, without the samples `not_yet`."""
        self._deadline = time.monotonic() + seconds
        try:
            for batch in self._index_batches():
                if time.monotonic() > self._deadline:
                    return
                self._load_batch(batch, not_yet=not_yet)
            self._trial_run.progress.is_whole_epoch = True
        except TrialEnded:
            self._trial_run.progress.is_ended = True
        except BaseException as error:  # noqa: BLE001 - of the sampler, which may want to exit: a fact
            self._note_failure(error, stage="sampler")
        finally:
            self._trial_run.progress.last_s = self._trial_run.now_s()
            if not self._trial_run.progress.is_ended:
                self._compare()
                self._retrace()

    def _index_batches(self) -> Iterator[list[Any]]:
        self._trial_run.show("next", self._seen.totals)
        for index in iter(index_sampler(self._loader)):
            batch = list(index) if auto_collates(self._loader) else [index]
            self._indices.update((short(each), each) for each in batch)
            yield batch
            self._trial_run.show("next", self._seen.totals)

    def _load_batch(self, batch: list[Any], *, not_yet: Sequence[str]) -> None:
        samples = [self.fetch(index) for index in batch if short(index) not in not_yet]
        if self._has_failed or len(samples) < len(batch):
            return
        self._collate(samples if auto_collates(self._loader) else samples[0])

    def fetch(self, index: Any) -> Any:
        """One sample, noted; None if it fails."""
        name = short(index)
        self._trial_run.show("fetch", self._seen.totals, sample=name)
        began = time.monotonic()
        try:
            sample = self._dataset[index]
        except TrialEnded:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the dataset raises, exits included, is a fact
            self._note_failure(error, stage="fetch", sample=name)
            return None
        self._note(name, index, sample, time.monotonic() - began)
        return sample

    def fetch_named(self, names: Sequence[str]) -> None:
        """Single samples; an index that is a number or a text can be told from its name."""
        try:
            for index in _meant_by(names):
                self.fetch(index)
        except TrialEnded:
            self._trial_run.progress.is_ended = True

    def _note(self, name: str, index: Any, sample: Any, seconds: float) -> None:
        seen = self._seen
        seen.totals.add(seconds)
        seen.slow = slowest([*seen.slow, SlowSample(sample=name, seconds=seconds)])
        if sample is None:
            seen.none.setdefault(name, index)
        content = content_of(sample)
        if not content.is_finite and len(seen.non_finite) < MOST_NOT_FINITE:
            seen.non_finite.append(name)
        if content.digest is not None:
            seen.contents[name] = content.digest

    # --- batches

    def _collate(self, samples: Any) -> None:
        self._trial_run.show("collate", self._seen.totals)
        began = time.monotonic()
        try:
            batch = self._loader.collate_fn(samples)
        except TrialEnded:
            raise
        except BaseException as error:  # noqa: BLE001 - likewise
            self._note_failure(error, stage="collate")
            return
        self._seen.totals.collate_s += time.monotonic() - began
        self._trial_run.count(batch)

    # --- items of a stream

    def load_stream(self, *, seconds: float) -> None:
        """Items until the time is over; those that workers had and that are not in the stream are wrong."""
        self._deadline = time.monotonic() + seconds
        digests, is_whole = self._items()
        self._trial_run.progress.is_whole_epoch = is_whole
        unknown = [name for name, held in self._of_workers.items() for digest in held.values() if digest not in digests]
        if is_whole and unknown and not self._has_failed and not self._trial_run.progress.is_ended:
            self._deadline = time.monotonic() + seconds
            again, is_whole = self._items()
            if is_whole and again == digests:
                self._seen.wrong = unknown[:MOST_NAMED]

    def _items(self) -> tuple[set[int], bool]:
        found: set[int] = set()
        try:
            items = iter(self._dataset)
            size = self._loader.batch_size or 1
            while time.monotonic() < self._deadline:
                batch = []
                for item in self._timed(islice(items, size)):
                    batch.append(item)
                    content = content_of(item)
                    found.add(-1 if content.digest is None else content.digest)
                if batch:
                    self._collate(batch if auto_collates(self._loader) else batch[0])
                if len(batch) < size:
                    return found, True
        except TrialEnded:
            self._trial_run.progress.is_ended = True
        except BaseException as error:  # noqa: BLE001 - of the dataset: a fact
            self._note_failure(error, stage="fetch", sample=str(self._seen.totals.samples))
        finally:
            self._trial_run.progress.last_s = self._trial_run.now_s()
        return found, False

    def _timed(self, items: Iterator[Any]) -> Iterator[Any]:
        while True:
            name = str(self._seen.totals.samples)
            self._trial_run.show("fetch", self._seen.totals, sample=name)
            began = time.monotonic()
            try:
                item = next(items)
            except StopIteration:
                return
            self._note(name, None, item, time.monotonic() - began)
            yield item

    # --- what it comes to

    def _compare(self) -> None:
        """Fetch again what workers had otherwise: if the trainer always gets the same, theirs was wrong."""
        random = 0
        for name, held in self._of_workers.items():
            here = self._seen.contents.get(name)
            if here is None or all(digest == here for digest in held.values()) or name not in self._indices:
                continue
            if random > MOST_RANDOM or time.monotonic() > self._deadline + 2 or len(self._seen.wrong) >= MOST_NAMED:
                return
            if self._is_always(here, self._indices[name]):
                self._seen.wrong.append(name)
            else:
                random += 1

    def _is_always(self, digest: int, index: Any) -> bool:
        """Whether a sample holds this however often it is fetched, and no random number is drawn for it."""
        before = global_states()
        try:
            again = {content_of(self._dataset[index]).digest for _ in range(REPEATS)}
        except TrialEnded:
            raise
        except BaseException:  # noqa: BLE001 - then it is not the same
            return False
        return again == {digest} and global_states() == before

    def _retrace(self) -> None:
        """Why samples are None."""
        swallowed = {}
        for name, index in list(self._seen.none.items())[:MOST_RETRACED]:
            if index is not None:
                swallowed[name] = retrace(lambda index=index: self._dataset[index])  # type: ignore[misc]
        self._trial_run.later.swallowed = swallowed
        self._trial_run.write_later()

    def _note_failure(self, error: BaseException, *, stage: str, sample: str | None = None) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        fact = raised_fact(error, stage=stage, places=self._trial_run.places, sample=sample)
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            self._trial_run.log.write(ProcessExit(status=status, how="sys.exit", place=fact.place, sample=sample))
        else:
            self._trial_run.log.write(fact)

    @property
    def slowest_s(self) -> float:
        return self._seen.totals.slowest_s

    @property
    def wrong(self) -> list[str]:
        """What workers had otherwise than the trainer, which had the same twice."""
        return self._seen.wrong

    def finish(self) -> None:
        """Write down all that is known."""
        seen, log = self._seen, self._trial_run.log
        log.write(seen.totals)
        for slow in seen.slow:
            log.write(slow)
        for name in list(seen.none)[:MOST_NAMED]:
            log.write(NoneSample(sample=name))
        for name in seen.non_finite:
            log.write(NonFiniteSample(sample=name))
        self._trial_run.finish()


def _meant_by(names: Sequence[str]) -> Iterator[Any]:
    for name in names:
        try:
            yield ast.literal_eval(name)
        except (ValueError, SyntaxError):
            continue
