"""What a worker is told of its seeds."""

# methods: fork spawn forkserver
import random
import sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Seeds(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        info = get_worker_info()
        return (
            i,
            info.id,
            info.num_workers,
            info.seed,
            torch.initial_seed(),
            int(np.random.get_state()[1][0]),
            random.getstate()[1][0],
        )


if __name__ == "__main__":
    print(get_worker_info())
    torch.manual_seed(5)
    loader = DataLoader(Seeds(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1])
    for epoch in range(2):
        for sample in loader:
            print(epoch, sample)
