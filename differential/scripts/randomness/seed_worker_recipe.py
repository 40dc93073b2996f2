"""The recipe for reproducibility in PyTorch's documentation."""

import random
import sys
import numpy
import torch
from torch.utils.data import DataLoader, Dataset


def seed_worker(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    numpy.random.seed(worker_seed)
    random.seed(worker_seed)


class Noise(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return i, numpy.random.rand(), random.random()


if __name__ == "__main__":
    g = torch.Generator()
    g.manual_seed(0)
    loader = DataLoader(
        Noise(),
        batch_size=4,
        shuffle=True,
        num_workers=2,
        worker_init_fn=seed_worker,
        generator=g,
        multiprocessing_context=sys.argv[1],
    )
    for _ in range(2):
        for batch in loader:
            print(batch)
    print(g.get_state().sum(), torch.initial_seed() == g.initial_seed())
