"""WeightedRandomSampler for unbalanced classes."""

# methods: fork spawn
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

if __name__ == "__main__":
    torch.manual_seed(2)
    labels = torch.tensor([0] * 9 + [1] * 3)
    weights = 1.0 / torch.bincount(labels)[labels]
    loader = DataLoader(
        TensorDataset(torch.arange(12), labels),
        batch_size=5,
        sampler=WeightedRandomSampler(weights, 20),
        num_workers=2,
        multiprocessing_context=sys.argv[1],
    )
    for _ in range(2):
        for index, label in loader:
            print(index.tolist(), label.tolist())
