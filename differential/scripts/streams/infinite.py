"""An infinite stream, left after some steps; then another epoch of it."""

import itertools
import sys
import torch
from torch.utils.data import DataLoader, IterableDataset


class Forever(IterableDataset):
    def __iter__(self):
        for i in itertools.count():
            yield i, torch.rand(1).item()


if __name__ == "__main__":
    torch.manual_seed(0)
    for kept in (False, True):
        loader = DataLoader(
            Forever(), batch_size=2, num_workers=2, persistent_workers=kept, multiprocessing_context=sys.argv[1]
        )
        for epoch in range(2):
            for step, batch in enumerate(loader):
                print(epoch, step, batch)
                if step == 3:
                    break
