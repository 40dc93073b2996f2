"""Batches of several loaders side by side: zip, itertools.cycle and chain."""

# methods: fork
import itertools
import torch
from torch.utils.data import DataLoader

torch.manual_seed(1)
labelled = DataLoader(range(6), batch_size=2, shuffle=True, num_workers=1)
unlabelled = DataLoader(range(100, 120), batch_size=3, shuffle=True, num_workers=2)
for a, b in zip(itertools.cycle(labelled), unlabelled):
    print(a.tolist(), b.tolist())
print([batch.tolist() for batch in itertools.chain(labelled, labelled)])
print([[a.tolist(), b.tolist()] for a, b in zip(labelled, labelled)])
