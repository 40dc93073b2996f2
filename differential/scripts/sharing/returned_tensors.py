"""The trainer changes tensors that it was given without collation: they are the dataset's own, if they are shared."""

import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self):
        self.shared = torch.zeros(4, 2).share_memory_()

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.shared[i]


if __name__ == "__main__":
    dataset = Rows()
    loader = DataLoader(
        dataset, num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1], persistent_workers=True
    )
    for epoch in range(2):
        for row in loader:
            print(epoch, row.tolist(), row.is_shared())
            row += 1
    print(dataset.shared.sum())
