"""Article 'runtime errors', example 1: 400 MB of float32 in the dataset, 42 MB a batch.

The article throws the batches away; the driver loads them again and compares every sample.

    python runtime_errors_1_shared_memory.py           torch's own loader
    antifreeze run runtime_errors_1_shared_memory.py   the same file on our engine
    ARTICLES_START_METHOD=spawn …                      either of them with another start method
"""
# ruff: noqa
# mypy: ignore-errors

# --- driver, not in the article: the start method under test ---
import os

import torch.multiprocessing

if "ARTICLES_START_METHOD" in os.environ:
    torch.multiprocessing.set_start_method(os.environ["ARTICLES_START_METHOD"], force=True)

# fmt: off
# --- from the article ---
import torch
from torch.utils.data import Dataset, DataLoader
import numpy as np

class LargeMemoryDataset(Dataset):
    def __init__(self, size):
        self.data = np.random.rand(size, 1024, 1024).astype(np.float32)  # Large data
    def __len__(self):
        return self.data.shape[0]
    def __getitem__(self, idx):
        return self.data[idx]

dataset = LargeMemoryDataset(size=100)
loader = DataLoader(dataset, batch_size=10, num_workers=4)

for batch in loader:
    pass # Process the batch
# --- end ---
# fmt: on

# --- driver, not in the article: the batches once more, and a look at every sample ---
wanted = dataset.data
arrived = (sample for batch in loader for sample in batch.numpy())

number_arrived = right = 0
for sample in arrived:
    right += number_arrived < len(wanted) and np.array_equal(sample, wanted[number_arrived])
    number_arrived += 1
print(f"samples right: {right} of {len(wanted)}")
raise SystemExit(not right == number_arrived == len(wanted))
