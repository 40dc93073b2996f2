"""A script that hangs on torch: the pool is made in the trainer, and a forked worker has none of its threads.

python thread_pool.py               hangs at the first batch
antifreeze doctor thread_pool.py    says why
antifreeze run thread_pool.py       runs
"""
# mypy: ignore-errors

import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, Dataset


def read_channel(index, channel):
    time.sleep(0.005)  # as long as a disk takes
    return float(3 * index + channel)


class Channels(Dataset):
    def __init__(self):
        self.pool = ThreadPoolExecutor(3)
        self.first = list(self.pool.map(read_channel, [0, 0, 0], range(3)))

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor(list(self.pool.map(read_channel, [index] * 3, range(3))))


if __name__ == "__main__":
    total = sum(batch.sum() for batch in DataLoader(Channels(), batch_size=8, num_workers=2))
    print("sum of all samples:", total.item())
