"""Trains, slowly: every sample takes its time, and the main process waits for most of it."""

import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        Path("frozen").touch()  # not frozen: this is what the tests wait for
        time.sleep(1.2)
        return i


if __name__ == "__main__":
    for _ in DataLoader(Slow(), batch_size=8, num_workers=2):
        pass
