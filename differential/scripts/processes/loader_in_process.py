"""The training runs in a process that the script starts, as with torch.multiprocessing.spawn."""

import sys
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader


def train(rank, method, results):
    torch.manual_seed(rank)
    loader = DataLoader(range(8), batch_size=2, shuffle=True, num_workers=1, multiprocessing_context=method)
    results.put((rank, [batch.tolist() for batch in loader]))


if __name__ == "__main__":
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    mp.spawn(train, args=(sys.argv[1], results), nprocs=2)
    print(sorted(results.get() for _ in range(2)))
