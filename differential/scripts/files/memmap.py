"""numpy.memmap, opened in __init__ and opened in the worker."""

import sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Mapped(Dataset):
    def __init__(self, lazily):
        self.data = None if lazily else np.memmap("data.bin", dtype=np.float32, mode="r", shape=(10, 3))

    def __len__(self):
        return 10

    def __getitem__(self, i):
        if self.data is None:
            self.data = np.memmap("data.bin", dtype=np.float32, mode="r", shape=(10, 3))
        return torch.from_numpy(np.array(self.data[i]))


if __name__ == "__main__":
    np.arange(30, dtype=np.float32).tofile("data.bin")
    for lazily in (True, False):
        for batch in DataLoader(Mapped(lazily), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]):
            print(batch)
