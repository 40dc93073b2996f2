"""Article 'How do I resolve PyTorch runtime errors related to `num_workers`?', example 2: a lambda in the dataset.

    python lambda_transform.py spawn            torch's own loader
    antifreeze run lambda_transform.py spawn    the same file on our engine

The article's lines are as they were printed. The driver around them chooses the start method and, as the article throws
its batches away, loads them once more and says what arrived.
"""
# ruff: noqa
# mypy: ignore-errors
# fmt: off

# --- driver, not in the article: the start method ---
import sys

import torch.multiprocessing

torch.multiprocessing.set_start_method(sys.argv[1], force=True)

# --- from the article ---
import torch
from torch.utils.data import Dataset, DataLoader
import random

class BadPickleDataset(Dataset):
    def __init__(self, size):
       self.data = list(range(size))
       self.transform = lambda x: x * random.random() # Lambda function, problematic for pickling
    def __len__(self):
        return len(self.data)
    def __getitem__(self, idx):
        return self.transform(self.data[idx])

dataset = BadPickleDataset(size=100)
loader = DataLoader(dataset, batch_size=10, num_workers=4)

for batch in loader:
    pass
# --- end of the article's lines ---

# --- driver, not in the article: what arrives, random factors included ---
import ctypes
import hashlib
import json

torch.manual_seed(2025)
batches = list(loader)
samples = torch.cat(batches)
print(json.dumps({
    "samples": len(samples),
    "batches": len(batches),
    "checksum": hashlib.sha256(ctypes.string_at(samples.data_ptr(), samples.nbytes)).hexdigest()[:12],
}))
