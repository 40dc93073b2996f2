"""A dataset that uses a loader itself, without workers."""

import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Nested(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        inner = DataLoader(range(6), batch_size=2, shuffle=True, num_workers=0)
        return torch.cat(list(inner))


if __name__ == "__main__":
    torch.manual_seed(0)
    for batch in DataLoader(Nested(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
