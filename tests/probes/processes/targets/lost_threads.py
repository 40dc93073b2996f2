"""Freezes: scikit-learn used its OpenMP threads in the main process, and waits for them in the worker."""

from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans  # before torch: its threads are its own then

from torch.utils.data import DataLoader, Dataset  # isort: skip


def centres(seed):
    points = np.random.default_rng(seed).normal(size=(3000, 4))
    return KMeans(2, n_init=1, max_iter=3, random_state=0).fit(points).cluster_centers_.shape[0]


class Clouds(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        Path("frozen").touch()
        return centres(i)


if __name__ == "__main__":
    centres(0)
    for _ in DataLoader(Clouds(), batch_size=2, num_workers=2):
        pass
