"""The training step draws random numbers between batches."""

# methods: fork
import random
import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler

torch.manual_seed(1), np.random.seed(1), random.seed(1)
loader = DataLoader(range(12), batch_size=2, sampler=RandomSampler(range(12), replacement=True), num_workers=2)
for epoch in range(2):
    for batch in loader:
        print(batch.tolist(), round(torch.rand(1).item(), 6), round(np.random.rand(), 6), round(random.random(), 6))
print(torch.get_rng_state().sum())
