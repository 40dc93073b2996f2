"""Read-only arrays, memory-mapped files and shared memory in the dataset, that workers write to, and the program meanwhile."""

import sys
import tempfile
import warnings
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader


class Arrays:
    def __init__(self, **arrays):
        self.arrays = arrays

    def __len__(self):
        return 6

    def __getitem__(self, i):
        told = {"index": i}
        for name, array in self.arrays.items():
            before = float(array[1])
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                torch.from_numpy(array)
            try:
                array[1] += 1
                told[name] = before, float(array[1]), len(warned)
            except ValueError as error:
                told[name] = before, str(error), len(warned)
        return told


def itself(sample):
    return sample


if __name__ == "__main__":
    method = sys.argv[1]
    path = Path(tempfile.mkdtemp()) / "numbers.npy"
    np.save(path, np.arange(20_000.0))
    memory = shared_memory.SharedMemory(create=True, size=80_000)
    shared = np.ndarray((10_000,), "f8", memory.buf)
    shared[:] = 5
    arrays = {
        "bytes": np.frombuffer(bytes(80_000)),
        "few bytes": np.frombuffer(bytes(80)),
        "r": np.load(path, mmap_mode="r"),
        "c": np.load(path, mmap_mode="c"),
    }
    if method != "fork":  # there all see what is written to it, at whatever moment
        arrays["shared"] = shared
    options = {"batch_size": None, "collate_fn": itself, "num_workers": 1, "prefetch_factor": 1}
    for told in DataLoader(Arrays(**arrays), multiprocessing_context=method, **options):
        print(told)
        shared[:] = 100
    print(np.load(path)[1])
    del shared, arrays, told
    memory.unlink()
