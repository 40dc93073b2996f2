"""Looks sick: spawned workers, a lock, a cache and an open file in the dataset. But it says itself what crosses."""

import tempfile
import threading
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N = 64


class Records(Dataset):
    def __init__(self, path, transform):
        self.path, self.transform = path, transform
        self.lock, self.cache = threading.Lock(), {}
        self.file = open(path, "rb")  # noqa: SIM115 - closed below

    def __getstate__(self):
        return {"path": self.path, "transform": self.transform}

    def __setstate__(self, state):
        self.__dict__.update(state, lock=threading.Lock(), cache={}, file=open(state["path"], "rb"))  # noqa: SIM115

    def __len__(self):
        return N

    def __getitem__(self, index):
        with self.lock:
            if index not in self.cache:
                self.file.seek(index * 8)
                self.cache[index] = self.transform(self.file.read(8))
        return self.cache[index], index


def to_tensor(record, scale):
    return torch.tensor(list(record), dtype=torch.float32) * scale


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "records.bin")
        path.write_bytes(b"".join(bytes([index] * 8) for index in range(N)))
        dataset = Records(path, partial(to_tensor, scale=1 / N))
        loader = DataLoader(
            dataset,
            batch_size=8,
            shuffle=True,
            num_workers=2,
            multiprocessing_context="spawn",
            persistent_workers=True,
        )
        model = nn.Linear(8, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        losses = []
        for _ in range(3):
            indices = []
            for x, index in loader:
                assert torch.equal(x[:, 0] * N, index.float())
                loss = nn.functional.mse_loss(model(x).squeeze(1), index / N)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                indices += index.tolist()
            assert sorted(indices) == list(range(N))
        dataset.file.close()
    assert losses[-1] < losses[0]
    print("OK")


if __name__ == "__main__":
    main()
