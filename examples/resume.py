"""A training that may be killed at any moment, and goes on from its last checkpoint with the losses it would have had.

    python examples/resume.py --checkpoint run.pt --kill-at 17    ends itself with SIGKILL, in mid-epoch
    python examples/resume.py --checkpoint run.pt                 goes on from the last checkpoint
    python examples/resume.py --checkpoint other.pt               for comparison: from the start, in one go

Every loss is printed to the last bit. What `save` keeps is what any training needs: its network and optimizer, the
generators that it draws from itself (dropout does), and how far its loader is.
"""

import argparse
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from antifreeze import StatefulDataLoader


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


class Training:
    """All that a training is made of."""

    def __init__(self, *, workers: int) -> None:
        torch.manual_seed(7)
        self.epoch = self.step = 0
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.01)
        self.loader = StatefulDataLoader(Pictures(96), batch_size=8, shuffle=True, num_workers=workers)

    def save(self, path: Path) -> None:
        state = {
            "epoch": self.epoch,
            "step": self.step,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
            "torch": torch.get_rng_state(),  # and torch.cuda.get_rng_state_all(), if the training is on GPUs
        }
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)  # in one step: a kill while it is written leaves the one before

    def load(self, path: Path) -> None:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        self.epoch, self.step = state["epoch"], state["step"]
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        torch.set_rng_state(state["torch"])


def main() -> None:
    options = parse_options()
    training = Training(workers=options.workers)
    if options.checkpoint.exists():
        training.load(options.checkpoint)
        print(f"going on in epoch {training.epoch}, after step {training.step}", flush=True)
    while training.epoch < options.epochs:
        for images, labels in training.loader:
            loss = cross_entropy(training.network(images), labels)
            training.optimizer.zero_grad()
            loss.backward()
            training.optimizer.step()
            training.step += 1
            print(f"loss {training.step} {loss.item().hex()}", flush=True)
            if training.step % options.every == 0:
                training.save(options.checkpoint)
            if training.step == options.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        training.epoch += 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="FILE")
    parser.add_argument("--every", type=int, default=5, metavar="N", help="steps between checkpoints (%(default)s)")
    parser.add_argument("--epochs", type=int, default=3, metavar="N", help="(%(default)s)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="(%(default)s)")
    parser.add_argument("--kill-at", type=int, metavar="STEP", help="end with SIGKILL after this step")
    return parser.parse_args()


if __name__ == "__main__":
    main()
