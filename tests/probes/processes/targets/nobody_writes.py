"""Freezes: the sample is read from a named pipe that nobody writes into."""

import os
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Piped(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i != 6:
            return i
        Path("frozen").touch()
        with open("samples.fifo", "rb") as file:
            return len(file.read())


if __name__ == "__main__":
    os.mkfifo("samples.fifo")
    for _ in DataLoader(Piped(), batch_size=2, num_workers=2):
        pass
