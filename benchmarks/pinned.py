"""How fast batches of 38 MB reach an accelerator with `pin_memory=True`, and copies with `non_blocking=True`.

Beside `make bench`, which needs no accelerator:

    .venv/bin/python benchmarks/pinned.py --workers 4

torch and antifreeze take turns, all in one process, as starting the device takes longer than a reading does. A ratio is
formed within a round, from batches per second in the steady state. Batches are seen to be pinned before the clock runs, and
the last one of every reading is fetched back from the device and checked.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

from datasets import FloatImages
from engines import ENGINES, OURS, TORCH, Engine, Task
from judge import interval
from reading import WARM_UP_WINDOWS, WrongBatch, epoch_of, window_of
from run import order_of
from workloads import ENOUGH_ROUNDS

BATCH_SIZE = 64


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=ENOUGH_ROUNDS)
    parser.add_argument("--seconds", type=float, default=1.5, help="of the clock, for each reading")
    options = parser.parse_args()
    if not torch.accelerator.is_available():
        print("there is no accelerator here")
        return 2
    os.environ["ANTIFREEZE"] = "require"
    task = Task(FloatImages(), BATCH_SIZE, options.workers, "fork", pin_memory=True)
    rates: dict[str, list[float]] = {TORCH: [], OURS: []}
    for number in range(options.rounds):
        for name in order_of([TORCH, OURS], number=number, ours=OURS):
            rates[name].append(rate_of(ENGINES[name], task, options.seconds))
            print(f"{ENGINES[name].title:<12} {rates[name][-1]:7.1f} batches/s", flush=True)
    ratio = interval([ours / torchs for ours, torchs in zip(rates[OURS], rates[TORCH], strict=True)])
    medians = {name: statistics.median(values) for name, values in rates.items()}
    device = torch.accelerator.current_accelerator()
    print(f"{device}, {options.workers} workers, 64×3×224×224 float32, pinned and copied to the device:")
    print(f"torch {medians[TORCH]:.1f}/s, antifreeze {medians[OURS]:.1f}/s, {ratio}")
    return 0


def rate_of(engine: Engine, task: Task, seconds: float) -> float:
    """Batches per second, the first windows left out."""
    import torch

    copy = torch.empty(BATCH_SIZE, 3, 224, 224, device=torch.accelerator.current_accelerator())
    count = 0
    with epoch_of(engine.open(task)) as batches:
        for _ in range(WARM_UP_WINDOWS * window_of(task)):
            batch = next(batches)
            if not batch.is_pinned():
                raise WrongBatch(f"{engine.title} gave a batch that is not pinned")
            copy.copy_(batch, non_blocking=True)
        torch.accelerator.synchronize()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(task.workers):
                copy.copy_(next(batches), non_blocking=True)
            count += task.workers
        torch.accelerator.synchronize()
        passed = time.perf_counter() - start
    last = WARM_UP_WINDOWS * window_of(task) + count - 1
    indices = range(last * BATCH_SIZE, (last + 1) * BATCH_SIZE)
    if not torch.equal(copy.cpu(), task.dataset.make_again(indices, [])):
        raise WrongBatch(f"batch {last} of {engine.title} is not what the dataset makes of its indices")
    return count / passed


if __name__ == "__main__":
    sys.exit(main())
