"""Augmentation by NumPy's global generator."""

import sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self):
        self.images = np.arange(8 * 16, dtype=np.float32).reshape(8, 4, 4)

    def __len__(self):
        return 8

    def __getitem__(self, i):
        image = self.images[i]
        if np.random.rand() < 0.5:
            image = image[:, ::-1]
        return np.ascontiguousarray(image + np.random.normal(size=(4, 4)).round(3))


if __name__ == "__main__":
    torch.manual_seed(3)
    np.random.seed(3)
    for epoch in range(2):
        for batch in DataLoader(Augmented(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]):
            print(epoch, batch.sum(dim=(1, 2)), batch.dtype)
