"""Freezes: a thread of the main process held the lock when the workers were forked."""

import threading
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self):
        self.lock = threading.Lock()

    def __len__(self):
        return 8

    def __getitem__(self, i):
        Path("frozen").touch()
        with self.lock:
            return i


def refresh(dataset, is_held, may_end):
    with dataset.lock:
        is_held.set()
        may_end.wait()


if __name__ == "__main__":
    dataset = Cached()
    is_held, may_end = threading.Event(), threading.Event()
    threading.Thread(target=refresh, args=(dataset, is_held, may_end), daemon=True).start()
    is_held.wait()
    for _ in DataLoader(dataset, batch_size=2, num_workers=2):
        pass
