"""What most of these scripts train on: small pictures of two kinds, augmented with every generator that a worker has."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset


class Pictures(Dataset):
    def __init__(self, count: int, *, seed: int, augment: bool) -> None:
        self.labels = torch.arange(count) % 2
        self.images = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
        self.images[self.labels == 1, :, 2:6, 2:6] += 0.5
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index]
        if self.augment:
            if random.random() < 0.5:
                image = image.flip(-1)
            image = image.roll(int(np.random.randint(-1, 2)), -2) + 0.1 * torch.randn_like(image)
        return image, self.labels[index]


def small_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2))
