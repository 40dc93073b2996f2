"""Watches torch's workers from inside: puts notes around each sample, and writes down what goes wrong and where.

`WatchedLoop` takes the place of torch's worker loop in the trainer; all the rest happens in the worker, once it is there,
and torch's own loop then runs in it. A spawned worker gets it with the pickled arguments: nothing is installed there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from antifreeze.doctor.facts import Place, Raised
from antifreeze.engine.crossing.explain import Culprit, describe, find_culprit
from antifreeze.engine.worker.retrace import retrace
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.target.content import odd_one
from antifreeze.probes.target.failures import raised_fact, type_name
from antifreeze.probes.target.worker_log import WorkerLog
from antifreeze.probes.trials.record_files import short
from antifreeze.probes.trials.records import ProbeFault, ProcessExit, UnsentResult


class WatchedLoop:
    """In the place of the loop that runs in torch's workers."""

    def __init__(self, directory: Path, places: PlaceMaker) -> None:
        self.directory = directory
        self.places = places
        self.original: Callable[..., None] | None = None

    def put_in(self) -> None:
        from antifreeze.torch_side.workers import set_worker_loop, worker_loop  # noqa: PLC0415 - torch is there by now

        self.original = worker_loop()
        set_worker_loop(self)

    def take_out(self) -> None:
        from antifreeze.torch_side.workers import set_worker_loop  # noqa: PLC0415

        assert self.original is not None
        set_worker_loop(self.original)

    def __reduce__(self) -> tuple[Any, ...]:
        return WatchedLoop, (self.directory, self.places)

    def __call__(self, *arguments: Any) -> None:
        from antifreeze.torch_side.workers import dataset_given, worker_loop  # noqa: PLC0415

        loop = self.original or worker_loop()
        bound = inspect.signature(loop).bind(*arguments)
        given = bound.arguments
        log = WorkerLog(self.directory, given["worker_id"], self.places)
        given["init_fn"] = _Init(log, given["init_fn"], dataset_given(given))
        _watch_fetchers(log)
        _watch_feeder(log)
        _watch_exit(log)
        faulthandler.disable()  # the trainer's; torch puts its handlers there, and ours come on top of them
        loop(*bound.args)
        log.leave()


class _Init:
    """Runs when torch has set up the worker, in the place of the user's worker_init_fn, which it calls."""

    def __init__(self, log: WorkerLog, init_fn: Callable[[int], Any] | None, dataset: Any) -> None:
        self._log = log
        self._init_fn = init_fn
        self._dataset = dataset

    def __call__(self, worker_id: int) -> None:
        self._log.catch_crashes()  # only now: torch has put its own handlers there
        try:
            if self._init_fn is not None:
                self._init_fn(worker_id)
        except BaseException as error:
            self._log.note_failure(error, stage="init")
            raise
        _watch_worker_info(self._log)
        self._log.note_generators(self._dataset)


def _watch_fetchers(log: WorkerLog) -> None:
    from antifreeze.torch_side.loaders import watch_fetchers  # noqa: PLC0415

    def watched(is_stream: bool, dataset: Any, collate_fn: Any) -> tuple[Any, Any]:
        parts = _Stream(dataset, log) if is_stream else _Map(dataset, log)
        return parts, _Collate(collate_fn, None if is_stream else dataset, log)

    watch_fetchers(watched)


class _Map:
    """A dataset whose samples are noted."""

    def __init__(self, dataset: Any, log: WorkerLog) -> None:
        self._dataset = dataset
        self._log = log

    def __getattr__(self, name: str) -> Any:
        if name == "__getitems__" and _gets_one_by_one(self._dataset):
            raise AttributeError(name)  # torch then does the same, and each sample is noted
        found = getattr(self._dataset, name)
        return self._get_all if name == "__getitems__" and found else found

    def __getitem__(self, index: Any) -> Any:
        self._log.begin_sample(index)
        try:
            sample = self._dataset[index]
        except BaseException as error:
            self._log.note_failure(error, stage="fetch", sample=short(index))
            raise
        self._log.end_sample(index, sample)
        return sample

    def _get_all(self, indices: Any) -> Any:
        self._log.begin_sample(indices)
        try:
            samples = self._dataset.__getitems__(indices)
        except BaseException as error:
            failed = self._first_that_fails(indices) if isinstance(error, Exception) else None
            self._log.note_failure(error, stage="fetch", sample=failed, batch=tuple(map(short, indices)))
            raise
        for index, sample in zip(indices, samples, strict=False):
            self._log.end_sample(index, sample)
        return samples

    def _first_that_fails(self, indices: Any) -> str | None:
        for index in indices:
            try:
                self._dataset[index]
            except Exception:  # noqa: BLE001 - what was raised has been noted: this is only to know for which
                return short(index)
        return None


def _gets_one_by_one(dataset: Any) -> bool:
    """Whether it is a part of a dataset, of which torch would get many samples by getting each."""
    from torch.utils.data import Subset  # noqa: PLC0415

    return type(dataset) is Subset and not callable(getattr(dataset.dataset, "__getitems__", None))


class _Stream:
    """An iterable dataset whose items are noted; an item is named by its number in this worker."""

    def __init__(self, dataset: Any, log: WorkerLog) -> None:
        self._dataset = dataset
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def __iter__(self) -> Iterator[Any]:
        self._log.begin_sample(0)
        return _Items(self._watched(iter, self._dataset), self)

    def item(self, items: Iterator[Any], number: int) -> Any:
        self._log.begin_sample(number)
        sample = self._watched(next, items)
        self._log.end_sample(number, sample)
        return sample

    def _watched(self, act: Callable[[Any], Any], thing: Any) -> Any:
        try:
            return act(thing)
        except StopIteration:
            self._log.end_stream()
            raise
        except BaseException as error:
            self._log.note_failure(error, stage="fetch", sample=self._log.sample)
            raise


class _Items:
    def __init__(self, items: Iterator[Any], stream: _Stream) -> None:
        self._items = items
        self._stream = stream
        self._number = -1

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._number += 1
        return self._stream.item(self._items, self._number)


class _Collate:
    """A collate_fn that is noted."""

    def __init__(self, collate_fn: Callable[[Any], Any], dataset: Any, log: WorkerLog) -> None:
        self._collate_fn = collate_fn
        self._dataset = dataset
        self._log = log

    def __call__(self, samples: Any) -> Any:
        self._log.begin_collate()
        try:
            batch = self._collate_fn(samples)
        except BaseException as error:
            self._note(error, samples)
            raise
        self._log.end_batch()
        return batch

    def _note(self, error: BaseException, samples: Any) -> None:
        """Which sample is to blame, and if it is None, why it is."""
        indices = self._log.batch
        odd = odd_one(samples) if isinstance(samples, list) else None
        index, how, swallowed = None, "", ""
        place = next((n for n, each in enumerate(samples) if each is None), None) if isinstance(samples, list) else None
        if place is not None:
            how = "the sample is None"
            index = indices[place] if place < len(indices) else None
            if index is not None and self._dataset is not None:
                swallowed = retrace(lambda: self._dataset[index])
        elif odd is not None and odd.place < len(indices):
            index, how = indices[odd.place], odd.how
        self._log.note_failure(
            error,
            stage="collate",
            sample=None if index is None else short(index),
            batch=tuple(map(short, indices)),
            culprit=how,
            swallowed=swallowed,
        )


def _watch_worker_info(log: WorkerLog) -> None:
    """Whether the dataset asks which worker it is in: torch keeps the answer in one object, whose fields are read then."""
    from antifreeze.torch_side.workers import worker_info  # noqa: PLC0415

    info = worker_info()
    kind: Any = type(info)

    class WatchedInfo(kind):  # type: ignore[misc]
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            if name in ("id", "num_workers"):
                log.note_worker_info()
            return super().__getattribute__(name)

    with contextlib.suppress(TypeError):  # torch's class may be of another make one day
        object.__setattr__(info, "__class__", WatchedInfo)


def _watch_feeder(log: WorkerLog) -> None:
    """Note results that cannot be pickled: they are lost in a thread of the queue, and torch's trainer waits forever."""
    from multiprocessing.queues import Queue  # noqa: PLC0415

    on_error = Queue._on_queue_feeder_error  # type: ignore[attr-defined]

    def note(error: BaseException, thing: Any) -> None:
        try:
            log.write(UnsentResult(raised=_of_lost_result(error, thing, log)))
        except Exception as fault:  # noqa: BLE001 - a thing that cannot be pickled may be strange in other ways, too
            log.write(ProbeFault(text=repr(fault)))
        on_error(error, thing)

    Queue._on_queue_feeder_error = staticmethod(note)  # type: ignore[attr-defined]


def _of_lost_result(error: BaseException, thing: Any, log: WorkerLog) -> Raised:
    fact = raised_fact(error, stage="send", places=log.places, worker=log.worker)
    result = thing[1] if isinstance(thing, tuple) and len(thing) == 2 else thing
    kind = getattr(result, "exc_type", None)
    if (
        kind is not None
    ):  # torch's wrapper around an exception of the dataset's, which has been noted when it was raised
        return replace(fact, culprit=f"the exception {type_name(kind)}")
    found = find_culprit({"batch": result}, ForkingPickler(_Nowhere()))
    if isinstance(found, Culprit):
        at = _place_of(found.thing, log.places)
        return replace(fact, culprit=f"{found.path} is {describe(found.thing)}", culprit_at=at)
    return fact


class _Nowhere:
    """A file that forgets."""

    def write(self, text: bytes) -> int:
        return len(text)


def _place_of(thing: Any, places: PlaceMaker) -> Place | None:
    code = getattr(getattr(thing, "__func__", thing), "__code__", None)
    if code is not None:
        return places.place(code.co_filename, code.co_firstlineno, code.co_qualname)
    return None


def _watch_exit(log: WorkerLog) -> None:
    """`os._exit` leaves no trace but what is written before."""
    leave = os._exit

    def noted(status: int) -> Any:
        if log.is_at_work:
            _frames, place = log.places.of_caller(depth=2)
            log.write(ProcessExit(status=status, how="os._exit", place=place, sample=log.sample))
        leave(status)

    os._exit = noted
