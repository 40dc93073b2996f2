"""Generators that the dataset holds: copies in each worker."""

import random
import sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Holding(Dataset):
    def __init__(self):
        self.numpy, self.random = np.random.default_rng(1), random.Random(2)

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return i, self.numpy.random(), self.random.random()


if __name__ == "__main__":
    dataset = Holding()
    for kept in (False, True):
        loader = DataLoader(
            dataset, batch_size=2, num_workers=2, persistent_workers=kept, multiprocessing_context=sys.argv[1]
        )
        for _ in range(2):
            for batch in loader:
                print(batch)
    print(dataset.numpy.random(), dataset.random.random())
