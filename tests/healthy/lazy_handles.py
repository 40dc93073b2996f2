"""Looks sick: HDF5 and LMDB in a dataset, and a lambda. But each worker opens its own, and with fork no lambda crosses."""

import tempfile

import h5py
import lmdb
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N = 120


class Lazy(Dataset):
    def __init__(self, h5_path, lmdb_path, transform):
        self.h5_path, self.lmdb_path, self.transform = h5_path, lmdb_path, transform
        self.h5 = self.env = None
        with h5py.File(h5_path, "r") as file:  # only to know how many there are
            self.length = len(file["x"])
        env = lmdb.open(lmdb_path, readonly=True, lock=False)
        assert env.stat()["entries"] == self.length
        env.close()

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.h5 is None:
            self.h5 = h5py.File(self.h5_path, "r")
            self.env = lmdb.open(self.lmdb_path, readonly=True, lock=False, max_readers=8)
        with self.env.begin() as transaction:
            label = int(transaction.get(str(index).encode()))
        return self.transform(self.h5["x"][index]), label, index


def write(h5_path, lmdb_path):
    with h5py.File(h5_path, "w") as file:
        rows = np.random.default_rng(0).normal(0, 0.5, (N, 16)) + (np.arange(N) % 2)[:, None]
        file.create_dataset("x", data=rows.astype("float32"), chunks=(1, 16), compression="gzip")
    env = lmdb.open(lmdb_path, map_size=1 << 22)
    with env.begin(write=True) as transaction:
        for index in range(N):
            transaction.put(str(index).encode(), str(index % 2).encode())
    env.close()


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/x.h5", f"{folder}/labels")
        scale = 2.0
        dataset = Lazy(f"{folder}/x.h5", f"{folder}/labels", transform=lambda row: torch.from_numpy(row) * scale - 1)
        loader = DataLoader(dataset, batch_size=12, shuffle=True, num_workers=2)
        model = nn.Linear(16, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(3):
            indices, right = [], 0
            for x, y, index in loader:
                logits = model(x)
                optimizer.zero_grad()
                nn.functional.cross_entropy(logits, y).backward()
                optimizer.step()
                right += (logits.argmax(1) == y).sum().item()
                indices += index.tolist()
            assert sorted(indices) == list(range(N))
    assert right > 100, right
    print("OK")


if __name__ == "__main__":
    main()
