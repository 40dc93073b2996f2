"""Looks sick: thread pools in trainer and dataset, and OpenCV. But each worker makes its own pool, when it needs it."""

from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N = 60


class Tiles(Dataset):
    def __init__(self):
        self._pool = None

    @property
    def pool(self):
        if self._pool is None:
            self._pool = ThreadPoolExecutor(2)
        return self._pool

    def __len__(self):
        return N

    def tile(self, index, corner):
        draw = np.random.default_rng(100 * index + corner)
        tile = draw.integers(0, 60, (32, 32, 3), dtype=np.uint8) + np.uint8(60 * (index % 3))
        return cv2.resize(cv2.GaussianBlur(tile, (5, 5), 0), (8, 8))

    def __getitem__(self, index):
        tiles = list(self.pool.map(lambda corner: self.tile(index, corner), range(4)))
        return torch.from_numpy(np.stack(tiles)).float() / 255, index


def main():
    torch.manual_seed(0)
    cv2.setNumThreads(0)
    dataset = Tiles()
    with ThreadPoolExecutor(2) as writers:  # as those have that log or upload on the side; its threads are idle
        mean = np.mean(list(writers.map(lambda index: dataset.tile(index, 0).mean(), range(8)))) / 255
        loader = DataLoader(dataset, batch_size=6, shuffle=True, num_workers=2)
        model = nn.Sequential(nn.Flatten(), nn.Linear(4 * 8 * 8 * 3, 3))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            indices, right = [], 0
            for x, index in loader:
                logits = model(x - mean)
                optimizer.zero_grad()
                nn.functional.cross_entropy(logits, index % 3).backward()
                optimizer.step()
                right += (logits.argmax(1) == index % 3).sum().item()
                indices += index.tolist()
            assert sorted(indices) == list(range(N))
    assert right > 45, right
    print("OK")


if __name__ == "__main__":
    main()
