"""Claim: numpy's matrix products (OpenBLAS) and torch's operations hang after a fork."""

import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from trying import outcome


def multiply_numpy() -> None:
    matrix = np.ones((600, 600))
    (matrix @ matrix).sum()


def multiply_torch() -> None:
    matrix = torch.ones(600, 600)
    (matrix @ matrix).sum()


def multiply_torch_with_threads() -> None:
    torch.set_num_threads(4)
    multiply_torch()


WORK = {"numpy": multiply_numpy, "torch": multiply_torch, "threads": multiply_torch_with_threads}


class Products(Dataset[int]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        WORK[sys.argv[1]]()
        return index


if __name__ == "__main__":
    if len(sys.argv) > 1:
        torch.set_num_threads(4)
        WORK[sys.argv[1]]()
        print(
            sum(len(batch) for batch in DataLoader(Products(), num_workers=2, multiprocessing_context="fork")), "of 16"
        )
    else:
        print("numpy in the trainer, then in workers:", outcome(__file__, "numpy"))
        print("torch in the trainer, then in workers:", outcome(__file__, "torch"))
        print("torch, with set_num_threads(4) in the worker:", outcome(__file__, "threads"))
