"""Batches of some megabytes, and of sizes that change."""

# methods: fork spawn
import hashlib
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Large(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.rand((i % 4 + 1) * 50_000, generator=g)


if __name__ == "__main__":
    held = []
    for batch in DataLoader(Large(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1]):
        held.append(batch)
    print([hashlib.md5(batch.numpy().tobytes()).hexdigest() for batch in held])
    print(sum(batch.sum().item() for batch in held))
