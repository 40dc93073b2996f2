"""Claim: OpenMP (scikit-learn's KMeans) in the trainer, then in a worker, hangs. It depends on who was imported first."""

import sys

if sys.argv[1:] == ["sklearn"]:
    import sklearn.cluster  # noqa: F401 - before torch

import numpy as np
import torch  # noqa: F401
from sklearn.cluster import KMeans
from torch.utils.data import DataLoader, Dataset

from trying import outcome

POINTS = np.random.default_rng(0).normal(size=(3000, 8))


class Clusters(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return len(KMeans(4, n_init=1, random_state=0).fit(POINTS).cluster_centers_)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        KMeans(4, n_init=1, random_state=0).fit(POINTS)
        loader = DataLoader(Clusters(), num_workers=2, multiprocessing_context="fork")
        print(sum(len(batch) for batch in loader), "of 8 samples")
    else:
        print("import torch, then sklearn:", outcome(__file__, "torch"))
        print("import sklearn, then torch:", outcome(__file__, "sklearn"))
