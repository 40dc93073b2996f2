"""mixup in the collate function, which draws."""

import sys
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate


def mixup(samples):
    x, y = default_collate(samples)
    weight = torch.distributions.Beta(0.4, 0.4).sample()
    order = torch.randperm(len(x))
    return weight * x + (1 - weight) * x[order], y, y[order], weight


if __name__ == "__main__":
    torch.manual_seed(4)
    dataset = TensorDataset(torch.arange(8.0), torch.arange(8))
    for batch in DataLoader(
        dataset, batch_size=4, num_workers=2, collate_fn=mixup, multiprocessing_context=sys.argv[1]
    ):
        print(batch)
