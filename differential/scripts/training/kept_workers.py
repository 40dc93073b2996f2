"""persistent_workers=True over epochs, with a counter in the dataset and epochs that are left early."""

import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Counting(Dataset):
    def __init__(self):
        self.count = 0

    def __len__(self):
        return 8

    def __getitem__(self, i):
        self.count += 1
        return i, self.count, torch.rand(1).item()


if __name__ == "__main__":
    torch.manual_seed(6)
    dataset = Counting()
    loader = DataLoader(
        dataset,
        batch_size=2,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        prefetch_factor=1,
        multiprocessing_context=sys.argv[1],
    )
    for epoch in range(3):
        for batch in loader:
            print(epoch, batch)
    print(dataset.count, loader._iterator is not None)
