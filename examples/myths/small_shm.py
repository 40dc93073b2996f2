"""Claim: too small a /dev/shm ends in a bus error."""

import sys
from multiprocessing import shared_memory

import torch
from torch.utils.data import DataLoader, Dataset

from trying import outcome


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1 << 20,), float(index))


class Cached(Images):
    """Writes into shared memory of its own, which is not there until somebody writes."""

    def __init__(self) -> None:
        self.memory = shared_memory.SharedMemory(create=True, size=256 << 20)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.memory.buf[index << 23 : (index + 1) << 23] = bytes(1 << 23)
        return torch.zeros(1)


def own_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["default"]:
            print(sum(1 for _ in DataLoader(Images(), batch_size=8, num_workers=2)), "batches")
        case ["collate"]:
            print(sum(1 for _ in DataLoader(Images(), batch_size=8, num_workers=2, collate_fn=own_collate)), "batches")
        case ["cache"]:
            print(sum(1 for _ in DataLoader(Cached(), batch_size=8, num_workers=2)), "batches")
        case _:
            print("64 MB, batches of 32 MB:", outcome(__file__, "default", shm_mb=64))
            print("the same with a collate_fn:", outcome(__file__, "collate", shm_mb=64))
            print("a SharedMemory of 256 MB in the dataset:", outcome(__file__, "cache", shm_mb=64))
