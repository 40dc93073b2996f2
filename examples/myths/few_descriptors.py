"""Claim: `received 0 items of ancdata` is what too few descriptors look like."""

import resource
import sys

import torch
from torch.utils.data import DataLoader, Dataset

from trying import outcome


class Pairs(Dataset[list[torch.Tensor]]):
    def __init__(self, tensors: int) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.tensor(index) for _ in range(self.tensors)]


def limit(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def first(samples: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    return samples[0]


def limit_worker(_: int) -> None:
    limit(64)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["trainer"]:
            limit(256)
            kept = list(DataLoader(Pairs(2), batch_size=1, num_workers=2))
            print(len(kept), "batches kept")
        case ["worker", *own]:
            collate_fn = first if own else None
            loader = DataLoader(
                Pairs(200), batch_size=1, num_workers=1, worker_init_fn=limit_worker, collate_fn=collate_fn
            )
            print(sum(1 for _ in loader), "batches")
        case _:
            print("the trainer may have 256, and keeps all batches:", outcome(__file__, "trainer"))
            print("a worker may have 64, for batches of 200 tensors:", outcome(__file__, "worker"))
            print("the same with a collate_fn:", outcome(__file__, "worker", "own"))
