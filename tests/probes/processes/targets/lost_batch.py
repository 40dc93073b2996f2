"""Freezes: batches cannot be pickled, and the thread that should send them loses them."""

from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Lazy(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 7:
            Path("frozen").touch()
        return lambda: i


if __name__ == "__main__":
    for _ in DataLoader(Lazy(), batch_size=2, num_workers=2, collate_fn=list):
        pass
