"""Freezes: the dataset's thread pool was made, and used, in the main process."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __init__(self):
        self.pool = ThreadPoolExecutor(2)
        list(self.pool.map(abs, range(4)))

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            Path("frozen").touch()
            return sum(self.pool.map(abs, [i]))
        return i


if __name__ == "__main__":
    for _ in DataLoader(Tiles(), batch_size=2, num_workers=2):
        pass
