"""One reading: one engine, one workload, in the process that plays the trainer and does nothing else.

*Rate*: the loader is started and four windows of batches are taken (a window is what workers prefetch: num_workers x
prefetch_factor); then the clock runs, for a given time, over whole turns of all workers. The loader still has work when
the clock stops, so neither its start nor its end is in the figure. *First batch*: from making the loader to the first
batch; the dataset exists and everything is imported. *Next epoch*: from asking for more after the last batch, which is
when workers that are not kept end, to the first batch of the next epoch. *Cycle*: an epoch of one loader and an epoch of
another. *Memory*: what `memory.py` says, after two windows of batches. *Growth*: what it says of all processes two windows
before the end of an epoch, divided by what it said two windows after its beginning. *Send* and *receive*: a dataset on its
way to a clean stem and back to an object, in this process, in CPU time; torch's reading is of pickle itself.

In all of them the consumer copies every tensor of every batch into memory that it has already, as a training step on
another device would. (Copies into new memory would measure the kernel's page faults: three quarters of the time of
`clone()` on 38 MB, the same for all engines.) It copies in one thread, as every other process here has one: the sixteen
threads that torch would take on sixteen cores spin while they wait for each other, and with workers on the same cores
they wait for the scheduler. Seen there: 115 ms of CPU time for one copy of 38 MB, 9 ms on the clock, for every engine.

What is checked, in every reading: the first window, byte for byte, by a checksum that must be torch's; and the last batch
that was timed, which must be what the dataset and the collate function make of its indices in this process.
"""

from __future__ import annotations

import importlib
import pickle
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engines import ENGINES, INLINE, OURS, Engine, Task
from memory import Memory, beside, everywhere
from workloads import PREFETCH_FACTOR, Alternating, Crossing, Footprint, Growth, Starts, Steady, workload_named

# So many windows ahead of what has been taken a batch may be, when they come in any order.
LATEST = 100
WARM_UP_WINDOWS = 4
# An epoch of a *start*, in windows: long enough for all workers to be at work.
EPOCH_WINDOWS = 3
# Of a *cycle*; the training epoch is longer where there are many workers.
TRAINING_BATCHES, VALIDATION_BATCHES = 48, 16
# For the seeds of workers, so that every engine that follows torch's draws the same numbers.
SEED = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """What one process measures."""

    engine: str
    workload: str
    workers: int
    seconds: float | None = None
    """How long the clock runs; None: as the workload says."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came out."""

    figures: dict[str, float]
    checksum: int
    """Of the first window: of all its batches, in order."""
    extra: dict[str, float]
    """Facts that the figures are judged by, or that explain them."""


def read(setting: Setting) -> Reading:
    """Take one reading here."""
    import torch

    import datasets

    torch.set_num_threads(1)
    workload, engine = workload_named(setting.workload), ENGINES[setting.engine]
    importlib.import_module(engine.module)
    name = workload.our_dataset if workload.our_dataset and engine.name == OURS else workload.dataset
    dataset = getattr(datasets, name)()
    own = workload.our_options if engine.name == OURS else {}
    task = Task(dataset, workload.batch_size, setting.workers, workload.start_method, our_options=own)
    torch.manual_seed(SEED)
    match workload.kind:
        case Steady(seconds):
            return read_rate(engine, task, setting.seconds or seconds)
        case Starts():
            return read_starts(engine, task, engine.figures_of(workload))
        case Alternating(keep_workers, seconds):
            return read_cycles(engine, replace(task, keep_workers=keep_workers), setting.seconds or seconds)
        case Footprint():
            return read_footprint(engine, task)
        case Growth():
            return read_growth(engine, task)
        case Crossing():
            return read_crossing(engine, dataset)


def read_unordered_rate(engine: Engine, task: Task, seconds: float) -> Reading:
    """As `read_rate`, of batches in any order: each is one of those that were due, and none comes twice."""
    consumer, window, seen = Consumer(), window_of(task), []

    def take(count: int) -> None:
        for _ in range(count):
            consumer.take(batches, 1)
            seen.append(checksum(consumer.copies, 0))

    with epoch_of(engine.open(task)) as batches:
        take(WARM_UP_WINDOWS * window)
        count, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            take(task.workers)
            count += task.workers
    due = [consumer.remake(task, number) for number in range(len(seen) + LATEST * window)]
    if len(set(seen)) < len(seen) or not set(seen) <= {checksum(batch, 0) for batch in due}:
        raise WrongBatch("a batch came twice, or is not what the dataset and the collate function make of any indices")
    first = 0
    for batch in due[:window]:
        first = checksum(batch, first)
    return Reading({"rate": count / passed}, first, {"batches": count})


def read_rate(engine: Engine, task: Task, seconds: float) -> Reading:
    if not task.our_options.get("in_order", True):
        return read_unordered_rate(engine, task, seconds)
    consumer, window = Consumer(), window_of(task)
    # Batches come in turns, one of every worker, and a part of a turn would make a worker look idle or busy.
    turn = 1 if engine.name == INLINE else task.workers
    with epoch_of(engine.open(task)) as batches:
        first = consumer.check(batches, window)
        consumer.take(batches, (WARM_UP_WINDOWS - 1) * window)
        count, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            consumer.take(batches, turn)
            count += turn
    consumer.require_right(task, number=WARM_UP_WINDOWS * window + count - 1)
    return Reading({"rate": count / passed}, first, {"batches": count})


def read_starts(engine: Engine, task: Task, figures: Sequence[str]) -> Reading:
    consumer = Consumer()
    task = replace(task, samples=range(EPOCH_WINDOWS * window_of(task) * task.batch_size))
    start = time.perf_counter()
    loader = engine.open(task)
    with epoch_of(loader) as batches:
        consumer.take(batches, 1)
        found = {"first_batch": time.perf_counter() - start}
        first = checksum(consumer.copies, 0)
        consumer.require_right(task, number=0)
        found["next_epoch"] = time_next_epoch(loader, batches, consumer)
    if "next_epoch_kept" in figures:
        loader = engine.open(replace(task, keep_workers=True))
        with epoch_of(loader) as batches:
            found["next_epoch_kept"] = time_next_epoch(loader, batches, consumer)
    consumer.require_right(task, number=0)
    return Reading(found, first, {})


def time_next_epoch(loader: Iterable[Any], batches: Iterator[Any], consumer: Consumer) -> float:
    """Take the rest of this epoch, then the time to the first batch of the next one."""
    for batch in batches:
        consumer.copy(batch)
        start = time.perf_counter()  # that of the last one counts: what follows it is the end of the epoch
    with epoch_of(loader) as again:
        consumer.take(again, 1)
        return time.perf_counter() - start


def read_cycles(engine: Engine, task: Task, seconds: float) -> Reading:
    consumer = Consumer()
    training_batches = max(TRAINING_BATCHES, 2 * window_of(task))
    training = engine.open(replace(task, samples=range(training_batches * task.batch_size)))
    validation = engine.open(replace(task, samples=range(VALIDATION_BATCHES * task.batch_size)))
    with epoch_of(training) as batches:
        first = consumer.check(batches, window_of(task))
        consumer.drain(batches)
    with epoch_of(validation) as batches:
        consumer.drain(batches)
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        for loader in (training, validation):
            with epoch_of(loader) as batches:
                consumer.drain(batches)
        count += 1
    consumer.require_right(task, number=VALIDATION_BATCHES - 1)
    return Reading({"cycle": passed / count}, first, {"cycles": count})


def read_footprint(engine: Engine, task: Task) -> Reading:
    import datasets

    seconds, first, found = read_start_and_memory(engine, task)
    # What workers take that have next to nothing to load, started in the same way.
    _, _, bare = read_start_and_memory(engine, replace(task, dataset=datasets.Integers()))
    return Reading(
        {"first_batch": seconds, "memory": found.whole_bytes},
        first,
        {"pss_bytes": found.pss_bytes, "bare_bytes": bare.whole_bytes, "processes": found.processes},
    )


def read_growth(engine: Engine, task: Task) -> Reading:
    consumer, window = Consumer(), window_of(task)
    count = len(task.dataset) // task.batch_size
    with epoch_of(engine.open(task)) as batches:
        first = consumer.check(batches, window)
        consumer.take(batches, window)
        before = everywhere()
        consumer.take(batches, count - 4 * window)  # until workers have nothing left to do they are all there
        after = everywhere()
    consumer.require_right(task, number=count - 2 * window - 1)
    return Reading(
        {"growth": after.whole_bytes / before.whole_bytes},
        first,
        {"before_bytes": before.whole_bytes, "after_bytes": after.whole_bytes, "processes": after.processes},
    )


def read_crossing(engine: Engine, dataset: Any) -> Reading:
    send, receive = crossing_ways() if engine.name == OURS else (partial(pickle.dumps, protocol=5), pickle.loads)
    start = time.process_time()
    sent = send(dataset)
    middle = time.process_time()
    received = receive(sent)
    end = time.process_time()
    if received.annotations != dataset.annotations:
        raise WrongBatch("what was received is not what was sent")
    return Reading({"send": middle - start, "receive": end - middle}, 0, {})


def crossing_ways() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    from antifreeze.engine.crossing import pickler

    send = partial(pickler.send, main_names=frozenset())
    return send, lambda crossing: pickler.receive(crossing.descriptors)[0]


def read_start_and_memory(engine: Engine, task: Task) -> tuple[float, int, Memory]:
    """Seconds to the first batch, its checksum, and the memory of the others two windows later."""
    consumer, window = Consumer(), window_of(task)
    start = time.perf_counter()
    with epoch_of(engine.open(task)) as batches:
        consumer.take(batches, 1)
        seconds = time.perf_counter() - start
        first = checksum(consumer.copies, 0)
        consumer.take(batches, 2 * window)
        found = beside()
    consumer.require_right(task, number=2 * window)
    return seconds, first, found


def window_of(task: Task) -> int:
    """The same for every engine, also for those without workers, so that checksums can be compared."""
    return task.workers * PREFETCH_FACTOR


@contextmanager
def epoch_of(loader: Iterable[Any]) -> Iterator[Iterator[Any]]:
    """One pass over the loader. Generators end here, torch's iterators when the last reference to them goes."""
    batches = iter(loader)
    try:
        yield batches
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


class WrongBatch(Exception):
    """A batch is not what the dataset and the collate function make of its indices."""


class Consumer:
    """Copies every tensor of a batch into the memory that the one in its place had before."""

    def __init__(self) -> None:
        self.copies: list[Any] = []
        self._memory: list[Any] = []

    def copy(self, batch: Any) -> None:
        place = -1
        for place, tensor in enumerate(tensors_of(batch)):
            if place < len(self.copies) and self.copies[place].shape == tensor.shape:
                self.copies[place].copy_(tensor)
            else:
                self._copy_to_other_shape(place, tensor)
        del self.copies[place + 1 :]

    def _copy_to_other_shape(self, place: int, tensor: Any) -> None:
        if place == len(self._memory):
            self._memory.append(tensor.new_empty(0))
        memory = self._memory[place]
        if memory.dtype != tensor.dtype or len(memory) < tensor.numel():
            memory = self._memory[place] = tensor.new_empty(tensor.numel())
        self.copies[place:] = [memory[: tensor.numel()].view(tensor.shape)]
        self.copies[place].copy_(tensor)

    def take(self, batches: Iterator[Any], count: int) -> None:
        for _ in range(count):
            self.copy(next(batches))

    def drain(self, batches: Iterator[Any]) -> None:
        for batch in batches:
            self.copy(batch)

    def check(self, batches: Iterator[Any], count: int) -> int:
        """Take so many batches; the checksum of all their bytes."""
        total = 0
        for _ in range(count):
            self.take(batches, 1)
            total = checksum(self.copies, total)
        return total

    def require_right(self, task: Task, *, number: int) -> None:
        """The batch that was taken last must be this one of its epoch."""
        if checksum(self.remake(task, number), 0) != checksum(self.copies, 0):
            raise WrongBatch(f"batch {number} is not what the dataset and the collate function make of its indices")

    def remake(self, task: Task, number: int) -> Any:
        """What this batch of an epoch must be."""
        indices = range(number * task.batch_size, (number + 1) * task.batch_size)
        return task.dataset.make_again(indices, self.copies)


def tensors_of(batch: Any) -> Iterator[Any]:
    """The tensors of a batch, in order. What it costs is in every engine's time, so it is kept small."""
    if isinstance(batch, (dict, list, tuple)):
        for value in batch.values() if isinstance(batch, dict) else batch:
            if isinstance(value, (dict, list, tuple)):
                yield from tensors_of(value)
            else:
                yield value
    else:
        yield batch


def checksum(batch: Any, start: int) -> int:
    for tensor in tensors_of(batch):
        start = zlib.crc32(f"{tensor.dtype}{tuple(tensor.shape)}".encode(), start)
        start = zlib.crc32(tensor.contiguous().numpy(), start)
    return start
