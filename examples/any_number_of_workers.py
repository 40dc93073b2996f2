"""The same losses with 0, 1, 2 and 5 workers, to the last bit.

python examples/any_number_of_workers.py
python examples/any_number_of_workers.py --seeding torch     for comparison: they differ
"""

import argparse
import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from antifreeze import DataLoader


class Pictures(Dataset):
    """Small pictures of two kinds, flipped, moved and blurred at random in the workers."""

    def __init__(self, count: int) -> None:
        self.labels = torch.arange(count) % 2
        self.images = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))
        self.images[self.labels == 1, :, 2:6, 2:6] += 0.5

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index]
        if random.random() < 0.5:
            image = image.flip(-1)
        return image.roll(int(np.random.randint(-1, 2)), -2) + 0.1 * torch.randn_like(image), self.labels[index]


def train(*, workers: int, seeding: str) -> list[float]:
    """The losses of two epochs."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    loader = DataLoader(Pictures(64), batch_size=8, shuffle=True, num_workers=workers, seeding=seeding)
    losses = []
    for _ in range(2):
        for images, labels in loader:
            loss = cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeding", choices=("ticket", "torch"), default="ticket", help="(%(default)s)")
    options = parser.parse_args()
    for workers in (0, 1, 2, 5):
        losses = train(workers=workers, seeding=options.seeding)
        print(
            f"{workers} workers: {len(losses)} losses, the last one {losses[-1].hex()}, their sum {sum(losses).hex()}"
        )


if __name__ == "__main__":
    main()
