"""Resume in the middle of an epoch by skipping batches."""

# methods: fork
import itertools
import torch
from torch.utils.data import DataLoader

for skip in (0, 3):
    torch.manual_seed(5)
    loader = DataLoader(range(20), batch_size=3, shuffle=True, num_workers=2)
    for number, batch in enumerate(itertools.islice(loader, skip, None), start=skip):
        print(number, batch.tolist())
