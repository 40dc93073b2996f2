"""A sampler of lists with batch_size=None: the dataset makes whole batches."""

import sys
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Whole(Dataset):
    def __init__(self):
        self.data = torch.arange(40.0).reshape(10, 4)

    def __len__(self):
        return 10

    def __getitem__(self, indices):
        return self.data[indices]


if __name__ == "__main__":
    torch.manual_seed(0)
    sampler = BatchSampler(RandomSampler(range(10)), batch_size=4, drop_last=False)
    for batch in DataLoader(
        Whole(), sampler=sampler, batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1]
    ):
        print(batch)
