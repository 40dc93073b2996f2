"""The seed is set where modules are imported, before the main guard."""

import random
import sys
import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(11)
random.seed(11)
TABLE = [random.random() for _ in range(4)]


class Noise(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return TABLE[i], torch.rand(1), random.random()


if __name__ == "__main__":
    for batch in DataLoader(Noise(), batch_size=2, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
