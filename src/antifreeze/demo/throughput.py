"""Batches per second of two small workloads, and a checksum of what arrives.

    python throughput.py                torch's own loader
    antifreeze run throughput.py        the same file on our engine

The consumer copies every tensor out of the batch, as a training step would.
"""

import ctypes
import hashlib
import json
import time
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

MEASURE_S = 1.2
WORKERS = 2


class TenSmallTensors(Dataset[Any]):
    """Samples of ten short fields, as language models have them."""

    batch_size = 4

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {f"field{k}": torch.full((16,), index + k) for k in range(10)}


class FloatRows(Dataset[Any]):
    """Samples of 256 KiB; 32 of them make a batch of 8 MiB."""

    batch_size = 32

    def __init__(self) -> None:
        self.rows = torch.randn(8, 65536, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index % len(self.rows)]


WORKLOADS: dict[str, TenSmallTensors | FloatRows] = {
    "dict of ten small tensors": TenSmallTensors(),
    "8 MiB of float32": FloatRows(),
}


def batches(workload: str) -> Iterator[list[torch.Tensor]]:
    """The tensors of one batch after another."""
    dataset = WORKLOADS[workload]
    loader = DataLoader(dataset, batch_size=dataset.batch_size, num_workers=WORKERS)
    return (list(batch.values()) if isinstance(batch, dict) else [batch] for batch in loader)


def checksum(workload: str, *, count: int = 20) -> str:
    """Of the first batches, bit for bit."""
    digest = hashlib.sha256()
    for tensors in islice(batches(workload), count):
        for tensor in tensors:
            digest.update(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))  # torch works without numpy, too
    return digest.hexdigest()[:12]


def batches_per_s(workload: str) -> float:
    """Counted from the first batch on: the start of the workers is left out."""
    arriving = batches(workload)
    kept = [tensor.clone() for tensor in next(arriving)]
    began = time.perf_counter()
    count, elapsed = 0, 0.0
    while elapsed < MEASURE_S:
        for own, tensor in zip(kept, next(arriving), strict=True):
            own.copy_(tensor)
        count, elapsed = count + 1, time.perf_counter() - began
    return count / elapsed


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # on machines with one core
    for name in WORKLOADS:
        result = {"workload": name, "checksum": checksum(name), "batches_per_s": batches_per_s(name)}
        print(json.dumps(result), flush=True)
