"""Two runs with the same seed give the same batches, and leave the generators in the same state."""

import random
import sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return i, torch.rand(2), np.random.rand(2), random.random()


def run():
    torch.manual_seed(7), np.random.seed(7), random.seed(7)
    loader = DataLoader(Noise(), batch_size=3, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[1])
    lines = [repr(batch) for _ in range(2) for batch in loader if batch[2].fill_(0) is not None]
    return [*lines, repr((torch.rand(1), np.random.rand(), random.random()))]


if __name__ == "__main__":
    first, second = run(), run()
    print("\n".join(first))
    print([i for i, pair in enumerate(zip(first, second)) if pair[0] != pair[1]])
