"""Claim: leaving the loop with `break` leaks the workers."""

import time

import psutil
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset[int]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        if index:
            time.sleep(self.seconds)
        return index


def break_out(loader: DataLoader[int], *, after_s: float = 0) -> float:
    for _ in loader:
        time.sleep(after_s)
        start = time.perf_counter()
        break
    return time.perf_counter() - start


if __name__ == "__main__":
    quick = DataLoader(Numbers(0), num_workers=2)
    counts = []
    for _ in range(5):
        break_out(quick)
        counts.append(len(psutil.Process().children()))
    print("workers after each of 5 breaks:", *counts)
    iterator = iter(quick)
    next(iterator)
    print("workers while the iterator is kept:", len(psutil.Process().children()))
    del iterator
    busy = DataLoader(Numbers(60), num_workers=2)
    print(f"a break while both workers are busy takes {break_out(busy, after_s=2):.0f} s")
