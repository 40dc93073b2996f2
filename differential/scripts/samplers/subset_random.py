"""SubsetRandomSampler for a training and a validation part."""

# methods: fork
import torch
from torch.utils.data import DataLoader, SubsetRandomSampler

torch.manual_seed(3)
order = torch.randperm(15).tolist()
parts = [
    DataLoader(range(15), batch_size=4, sampler=SubsetRandomSampler(part), num_workers=2)
    for part in (order[:10], order[10:])
]
for _ in range(2):
    for part in parts:
        print(len(part), [batch.tolist() for batch in part])
