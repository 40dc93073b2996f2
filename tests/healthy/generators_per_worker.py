"""Looks sick: a dataset that holds random generators. But every worker makes new ones, from the seed that torch gave it."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N = 96


class Augmented(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.flips = random.Random(0)

    def __len__(self):
        return N

    def __getitem__(self, index):
        noise = self.rng.normal(0, 0.1, 8).astype("float32")
        sign = self.flips.choice((-1, 1))
        return torch.full((8,), float(index % 3)) * sign + torch.from_numpy(noise), index % 3, noise[0]


def seed_worker(worker_id):
    seed = torch.initial_seed()
    np.random.seed(seed % 2**32)
    random.seed(seed)
    dataset = torch.utils.data.get_worker_info().dataset
    dataset.rng, dataset.flips = np.random.default_rng(seed), random.Random(seed)


def main():
    loader = DataLoader(
        Augmented(),
        batch_size=12,
        shuffle=True,
        num_workers=2,
        worker_init_fn=seed_worker,
        generator=torch.Generator().manual_seed(0),
    )
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    draws = []
    for _ in range(4):
        right = 0
        for x, y, drawn in loader:
            logits = model(x)
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, y).backward()
            optimizer.step()
            right += (logits.argmax(1) == y).sum().item()
            draws += drawn.tolist()
    assert len(set(draws)) == len(draws) == 4 * N
    assert right > 80, right
    print("OK")


if __name__ == "__main__":
    main()
