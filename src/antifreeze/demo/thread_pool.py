"""A script that hangs on torch: the pool is made in the trainer, and a forked worker has none of its threads.

python thread_pool.py               hangs at the second sample
antifreeze doctor thread_pool.py    says why
antifreeze run thread_pool.py       runs
"""
# mypy: ignore-errors

from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, Dataset


def load(index):
    return torch.full((4,), float(index))


class Records(Dataset):
    def __init__(self):
        self.pool = ThreadPoolExecutor(1)
        self.first = self.read(0)

    def read(self, index):
        return self.pool.submit(load, index).result()

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.first if index == 0 else self.read(index)


if __name__ == "__main__":
    loader = DataLoader(Records(), batch_size=8, num_workers=2)
    print("sum of all samples:", sum(batch.sum().item() for batch in loader))
