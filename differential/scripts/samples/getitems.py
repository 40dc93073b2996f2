"""__getitems__: one call for a batch."""

import sys
import torch
from torch.utils.data import DataLoader, Dataset, Subset


class AtOnce(Dataset):
    def __init__(self):
        self.calls = 0

    def __len__(self):
        return 9

    def __getitem__(self, i):
        return i, -1

    def __getitems__(self, indices):
        self.calls += 1
        return [(i, self.calls) for i in indices]


if __name__ == "__main__":
    dataset = AtOnce()
    for data in (dataset, Subset(dataset, [8, 6, 4, 2]), torch.utils.data.ConcatDataset([dataset, dataset])):
        for batch in DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]):
            print(batch)
    print([batch for batch in DataLoader(dataset, batch_size=None, num_workers=1, sampler=[3])], dataset.calls)
