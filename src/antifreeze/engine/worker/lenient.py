"""Indices → samples → batch under a policy: a sample that fails is fetched again, left out or replaced.

Fetched again means: with generators as they were before it. That state is not kept while all goes well. So the first
failure in a ticket rewinds (`rewind.py`) and goes through the ticket again up to the sample that failed; from there on
the state is kept before each sample, until the ticket is done. It is kept throughout the first ticket.
"""

from __future__ import annotations

import contextlib
import operator
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import Subset

from antifreeze.engine.arena.board import Step
from antifreeze.engine.flow.mishap import wait_before_next
from antifreeze.engine.showing import add_note
from antifreeze.engine.wire.messages import Mishap, MishapKind, Work
from antifreeze.engine.worker.fetch import Fetcher, has_none, to_be_used
from antifreeze.engine.worker.mishaps import describe, describe_index
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.errors import SampleFailed
from antifreeze.torch_side.workers import HAS_NUMPY

if HAS_NUMPY:
    import numpy as np

# So many other samples are tried in place of one that failed.
MOST_DRAWS = 10
SLICE_S = 1.0
NOT_REWOUND = "random generators could not be set back to where they were"


IsInterruption = Callable[[Exception], bool]


def never(error: Exception) -> bool:
    """Say that no exception is an interruption: a worker has no signal handlers of the program's."""
    return False


class NothingLeft(Exception):
    """All samples of a batch were left out."""


class Tried(NamedTuple):
    """What came of fetching a sample as often as the policy says."""

    sample: Any
    error: Exception | None
    attempts: int
    was_none: bool = False
    """Whether the error is ours: the dataset returned None, and torch's default collate cannot have that."""
    before: bytes | None = None
    """Where the generators were before a sample that was fetched more than once; None: nobody knows."""


class LenientFetcher:
    """Makes the batch that belongs to a ticket, as far as it can be made."""

    def __init__(
        self,
        recipe: Recipe,
        fetcher: Fetcher,
        randomness: Randomness,
        *,
        rewind: Callable[[], bool],
        pulse: memoryview,
        mishaps: list[Mishap],
        is_interruption: IsInterruption = never,
    ) -> None:
        """`is_interruption`: tells exceptions that a signal handler of the program raised from those of samples."""
        self._dataset = recipe.dataset
        self._base_seed = recipe.base_seed
        self._policy = recipe.policy
        self._batched = recipe.auto_collation
        self._fetcher = fetcher
        self._stopwatch = fetcher.stopwatch
        self._randomness = randomness
        self._rewind = rewind
        self._pulse = pulse
        self._mishaps = mishaps
        self._is_interruption = is_interruption
        self._at_once = fetcher.has_getitems and not _asks_one_by_one(recipe.dataset)
        self._is_careful = False
        """Whether the state of the generators is kept before each sample."""
        self._is_first = recipe.policy.retries > 0 and not recipe.by_ticket
        if recipe.policy.retries:
            randomness.note_vacancies()

    def fetch(self, work: Work) -> Any:
        """The batch, without what the policy does without; NothingLeft if that is all of it."""
        # User code may seed generators once, at the first sample: to go back beyond that would undo it.
        self._is_careful, self._is_first = self._is_first, False
        self._randomness.is_exact = True
        return self._make(work)

    def replay(self, work: Work) -> None:
        """As `fetch`, to bring the generators to where that left them; what happens on the way has been told."""
        was_careful, told = self._is_careful, len(self._mishaps)
        self._is_careful = True  # there is no rewinding while rewinding
        try:
            self._make(work)
        finally:
            self._is_careful = was_careful
            del self._mishaps[told:]

    def _make(self, work: Work) -> Any:
        if not self._batched:
            samples = self._fetch_one(work, 0, work.index)
            self._stopwatch.fetched(1, whole=work.index)
            if not samples:
                raise NothingLeft
            return self._fetcher.collate_one(samples[0])
        samples = self._fetch_at_once(work) if self._at_once else self._fetch_each(work)
        self._stopwatch.fetched(len(work.index), whole=work.index)
        if isinstance(samples, list) and not samples and len(work.index):
            raise NothingLeft
        return self._fetcher.collate(samples, work.index)

    def _fetch_each(self, work: Work, *, insist: bool = True) -> list[Any]:
        samples: list[Any] = []
        for position, index in enumerate(work.index):
            samples += self._fetch_one(work, position, index, before=samples, insist=insist)
        return samples

    def _fetch_one(
        self, work: Work, position: int, index: Any, *, before: list[Any] | None = None, insist: bool = True
    ) -> list[Any]:
        """The sample, or the one in its place; nothing if it is left out. `before`: those of its batch before it."""
        self._point_at(position)
        if position in work.leave_out:
            return self._do_without(work, position, index, Tried(None, _in_quarantine(), 0))
        tried = self._try(work, position, index, self._fetcher.fetch_one, before, insist=insist)
        return [tried.sample] if tried.error is None else self._do_without(work, position, index, tried)

    def _fetch_at_once(self, work: Work) -> Any:
        asked = work.index
        if work.leave_out:
            asked = [index for position, index in enumerate(work.index) if position not in work.leave_out]
        self._point_at(-1)
        tried = self._try(work, -1, asked, self._dataset.__getitems__) if len(asked) > 0 else Tried([], None, 0)
        if tried.error is not None:
            if self._policy.then == "raise" and not self._fetcher.has_getitem:
                raise _with_attempts(tried.error, asked, tried.attempts)
            if self._policy.retries and tried.before is not None:  # other samples may have failed each time
                self._randomness.restore(tried.before)
            return self._fetch_each(work, insist=False)
        is_whole = not (self._fetcher.refuses_none and has_none(tried.sample))
        if (not work.leave_out and is_whole) or len(tried.sample) != len(asked):
            return tried.sample
        given = iter(tried.sample)
        samples: list[Any] = []
        for position, index in enumerate(work.index):
            self._point_at(position)
            if position in work.leave_out:
                samples += self._do_without(work, position, index, Tried(None, _in_quarantine(), 0))
            elif (sample := next(given)) is None and self._fetcher.refuses_none:
                samples += self._do_without(work, position, index, Tried(None, none_returned(), 1, was_none=True))
            else:
                samples.append(sample)
        return samples

    def _try(
        self,
        work: Work,
        position: int,
        index: Any,
        fetch: Callable[[Any], Any],
        samples: list[Any] | None = None,
        *,
        insist: bool = True,
    ) -> Tried:
        before = self._state() if self._is_careful else None
        attempt = 0
        while True:
            attempt += 1
            sample, error = self._attempt(fetch, index)
            was_none = sample is None and error is None and self._fetcher.refuses_none
            if was_none:
                error = none_returned()
            if error is None:
                return Tried(sample, None, attempt)
            is_stop = isinstance(error, StopIteration)
            wait_s = wait_before_next(self._policy, failed=attempt, is_stop_iteration=is_stop) if insist else None
            if wait_s is None:
                return Tried(None, error, attempt, was_none, before)
            if before is None:
                if samples:  # they may lie in memory of the dataset's, and are about to be fetched once more
                    with contextlib.suppress(Exception):  # of a class of the user's
                        samples[:] = [copied(each) for each in samples]
                before = self._state_before(work, position)
            kind: MishapKind = "retried" if attempt <= self._policy.retries else "redone"
            if before is not None:
                self._randomness.restore(before)
            remark = "" if before is not None and self._randomness.is_exact else NOT_REWOUND
            self._mishaps.append(describe(kind, position, index, attempt, error, remark))
            wait_for(wait_s, self._pulse)
            self._point_at(position)

    def _state_before(self, work: Work, position: int) -> bytes | None:
        """The state of the generators before this sample, by going there once more; None if that cannot be done."""
        told = len(self._mishaps)
        self._is_careful = True
        try:
            if not self._rewind():
                return None
            for earlier, index in zip(range(position), work.index if position > 0 else (), strict=False):
                self._fetch_one(work, earlier, index)
            return self._state()
        except Exception:  # an earlier sample of this ticket, which was there before, fails now
            return None
        finally:
            del self._mishaps[told:]

    def _do_without(self, work: Work, position: int, index: Any, tried: Tried) -> list[Any]:
        assert tried.error is not None
        if self._policy.then == "skip":
            self._mishaps.append(describe("skipped", position, index, tried.attempts, tried.error))
            return []
        if self._policy.then == "replace":
            return [self._replace(work, position, index, tried)]
        if tried.was_none:
            return [None]  # torch has words for it
        raise _with_attempts(tried.error, index, tried.attempts)

    def _replace(self, work: Work, position: int, index: Any, tried: Tried) -> Any:
        """Another sample, drawn by a generator of our own: the same on every run, and the user's are left alone."""
        first = last = tried.error
        assert first is not None and last is not None
        for other in self._draws(work, position, index):
            sample, error = self._attempt(self._fetcher.fetch_one, other)
            if error is None and sample is None and self._fetcher.refuses_none:
                error = none_returned()
            if error is None:
                remark = f"sample {other} is in its place"
                self._mishaps.append(describe("replaced", position, index, tried.attempts, first, remark))
                return sample
            last = error
        add_note(last, f"antifreeze: no other sample could be had in place of sample {describe_index(index)}")
        raise last

    def _draws(self, work: Work, position: int, index: Any) -> Iterator[int]:
        """Indices to try, but for those that are known not to work: what is in quarantine kills."""
        length = len(self._dataset)
        try:
            known = sorted({operator.index(each) % length for each in (index, *work.quarantined)}) if length else []
        except TypeError:  # keys of some kind, and who knows which others there are
            return
        # Not by the ticket: the tickets of a pass that is resumed have other numbers.
        seed = work.seed if work.seed is not None else f"{self._base_seed} {operator.index(index)}"
        for number in range(MOST_DRAWS if length > len(known) else 0):
            generator = random.Random(f"{seed} {position} {number}")
            other = generator.randrange(length - len(known))
            for each in known:
                other += other >= each
            yield other

    def _attempt(self, fetch: Callable[[Any], Any], index: Any) -> tuple[Any, Exception | None]:
        # In a function of its own: an error that the frame with the samples held would hold them, through its traceback.
        try:
            return fetch(to_be_used(index)), None
        except Exception as error:  # of user code: the policy says what becomes of it
            if self._is_interruption(error):
                raise
            return None, error

    def _state(self) -> bytes | None:
        try:
            return self._randomness.state()
        except Exception:  # of a generator of the user's own kind
            return None

    def _point_at(self, position: int) -> None:
        self._pulse[2] = position + 1
        self._pulse[0] = Step.FETCHING


def copied(sample: Any) -> Any:
    """A sample whose tensors and arrays have memory of their own; what else it holds is left as it is."""
    kind = type(sample)
    if isinstance(sample, torch.Tensor):
        return _copied_tensor(sample)
    if HAS_NUMPY and isinstance(sample, np.ndarray):
        return sample.copy()
    if kind is dict:
        return {name: copied(part) for name, part in sample.items()}
    if kind is list or kind is tuple:
        return kind(map(copied, sample))
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return kind(*map(copied, sample))
    return sample


def _copied_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the attributes of the tensor; the tensor itself if its class makes no copies of its own kind."""
    copy = tensor.detach().clone().requires_grad_(tensor.requires_grad) if tensor.is_leaf else tensor.clone()
    if type(copy) is not type(tensor):
        return tensor
    vars(copy).update(vars(tensor))
    return copy


def wait_for(wait_s: float, pulse: memoryview) -> None:
    """Pause before a sample is fetched again, with signs of life: this is no stall."""
    step, pulse[0] = pulse[0], Step.IDLE  # nobody's code is running
    while wait_s > 0:
        time.sleep(min(wait_s, SLICE_S))
        wait_s -= SLICE_S
        pulse[2] += 1
    pulse[0] = step


def _asks_one_by_one(dataset: Any) -> bool:
    """Whether `__getitems__` is a loop of torch's over single samples: then each of them can fail by itself."""
    return type(dataset) is Subset and not callable(getattr(dataset.dataset, "__getitems__", None))


def _with_attempts(error: Exception, index: Any, attempts: int) -> Exception:
    if attempts > 1:
        add_note(error, f"antifreeze: this was attempt {attempts} at sample {describe_index(index)}, and the last")
    return error


def none_returned() -> SampleFailed:
    """What is wrong with a sample that is None."""
    return SampleFailed("the dataset returned None, which default_collate cannot put into a batch")


def _in_quarantine() -> SampleFailed:
    return SampleFailed("the sample is in quarantine: workers that fetched it died, or hung")
