"""Freezes: a worker is stopped, as by Ctrl-Z or a debugger that went away."""

import os
import signal
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 2:
            Path("frozen").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return i


if __name__ == "__main__":
    for _ in DataLoader(Numbers(), batch_size=2, num_workers=2):
        pass
