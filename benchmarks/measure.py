"""One measurement: one engine, one workload, in a fresh process that does nothing else.

What is timed. *Rate*: the loader is started and its first `WARM_UP` windows of batches are taken (a window is what
workers prefetch: num_workers x prefetch_factor); then the clock runs over `batches` batches; the loader still has two
windows to load when it stops, so neither start-up nor the drain at the end is in it. *Start*: from just before `iter()`
to the first batch; the dataset exists and everything is imported. In both the consumer copies every tensor of every
batch into memory that it has already, as a training step on another device would. (Copies into new memory would measure
the kernel's page faults: three quarters of the time of `clone()` on 38 MB, the same for all engines.)

What is checked. A separate, untimed process per engine folds every byte of every batch into one checksum; all engines
must agree. Timed processes check the number of batches and the checksum of the last batch timed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PREFETCH_FACTOR = 2
WARM_UP = 4
# No measurement takes nearly as long; one that does hangs.
TIME_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What one process measures."""

    engine: str
    """torch, antifreeze, or inline (torch with num_workers=0)."""
    workload: str
    workers: int
    checksum_all: bool = False
    """Fold every batch into the checksum instead of timing."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came out."""

    seconds: float
    """From the start to the first batch, or for all batches timed."""
    batches: int
    """How many batches were timed (or, with `checksum_all`, checked)."""
    checksum: int


def measure(setting: Setting) -> Reading:
    """Run one measurement in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="antifreeze-bench-") as folder:
        usage = Path(folder, "usage.jsonl")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIFREEZE")}
        environment |= {"ANTIFREEZE": "require", "ANTIFREEZE_USAGE": str(usage)}
        # torch warns when there are more workers than cores; that is known and chosen here.
        environment["PYTHONWARNINGS"] = "ignore:This DataLoader will create:UserWarning"
        ended = subprocess.run(
            [sys.executable, __file__, json.dumps(asdict(setting))],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=TIME_LIMIT_S,
            check=True,
            text=True,
        )
        if setting.engine == "antifreeze":
            require_our_engine(usage)
    return Reading(**json.loads(ended.stdout.splitlines()[-1]))


def require_our_engine(usage: Path) -> None:
    engines = {json.loads(line)["engine"] for line in usage.read_text().splitlines()}
    if engines != {"antifreeze"}:
        raise RuntimeError(f"this was to measure antifreeze, but the loaders ran on {sorted(engines)}")


# From here on: inside the measured process.


def measure_here(setting: Setting) -> Reading:
    # Imported here, so that the parent stays small and idle beside what it measures.
    from workloads import WORKLOADS, Rate

    workload = next(workload for workload in WORKLOADS if workload.name == setting.workload)
    window = max(setting.workers * PREFETCH_FACTOR, 1)
    warm_up = WARM_UP * window
    timed = workload.goal.batches if isinstance(workload.goal, Rate) else 1
    total = warm_up + timed + 2 * window
    dataset = workload.make_dataset(total * workload.batch_size)
    loader = make_loader(setting, dataset, workload.batch_size, workload.start_method)
    if setting.checksum_all:
        return checksum_all(loader, limit=total)
    if isinstance(workload.goal, Rate):
        return time_steady_state(loader, warm_up=warm_up, timed=timed)
    return time_first_batch(loader)


def make_loader(setting: Setting, dataset: Any, batch_size: int, start_method: str | None) -> Any:
    """The loaders differ in their class alone."""
    from torch.utils.data import DataLoader

    if setting.engine == "inline":
        return DataLoader(dataset, batch_size=batch_size)
    if setting.engine == "antifreeze":
        from antifreeze import DataLoader
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=setting.workers,
        prefetch_factor=PREFETCH_FACTOR,
        multiprocessing_context=start_method,
    )


def time_steady_state(loader: Any, *, warm_up: int, timed: int) -> Reading:
    consumer = Consumer()
    batches = iter(loader)
    for _ in range(warm_up):
        consumer.copy(next(batches))
    start = time.perf_counter()
    for _ in range(timed):
        consumer.copy(next(batches))
    seconds = time.perf_counter() - start
    return Reading(seconds, timed, checksum(consumer.copies, 0))


def time_first_batch(loader: Any) -> Reading:
    consumer = Consumer()
    start = time.perf_counter()
    batches = iter(loader)
    consumer.copy(next(batches))
    seconds = time.perf_counter() - start
    return Reading(seconds, 1, checksum(consumer.copies, 0))


def checksum_all(loader: Any, *, limit: int) -> Reading:
    total = count = 0
    for count, batch in enumerate(loader, 1):
        total = checksum(batch, total)
        if count == limit:
            break
    return Reading(0.0, count, total)


def tensors_of(batch: Any) -> Iterator[Any]:
    """The tensors of a batch, in order."""
    if isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors_of(value)
    else:
        yield batch


class Consumer:
    """Copies every tensor of a batch into the memory that the one in its place had before."""

    def __init__(self) -> None:
        self.copies: list[Any] = []

    def copy(self, batch: Any) -> None:
        for place, tensor in enumerate(tensors_of(batch)):
            if place == len(self.copies):
                self.copies.append(tensor.clone())
            elif self.copies[place].shape == tensor.shape:
                self.copies[place].copy_(tensor)
            else:
                self.copies[place] = tensor.clone()


def checksum(batch: Any, start: int) -> int:
    for tensor in tensors_of(batch):
        start = zlib.crc32(f"{tensor.dtype}{tuple(tensor.shape)}".encode(), start)
        start = zlib.crc32(tensor.contiguous().numpy(), start)
    return start


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("setting", type=json.loads)
    print(json.dumps(asdict(measure_here(Setting(**parser.parse_args().setting)))))
