"""Trains for as long as it is let."""

import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        time.sleep(0.02)
        return torch.full((16,), float(i))


if __name__ == "__main__":
    model = torch.nn.Linear(16, 1)
    loader = DataLoader(Numbers(), batch_size=8, num_workers=2, persistent_workers=True)
    while True:
        for batch in loader:
            model(batch).sum().backward()
            time.sleep(0.05)
        Path("frozen").touch()  # not frozen: this is what the tests wait for
