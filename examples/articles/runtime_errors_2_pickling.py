"""Article 'runtime errors', example 2: a lambda in the dataset.

The article throws the batches away; the driver loads them again and compares every sample, random factors
included: torch promises that worker w seeds `random` with base seed + w, and batch k goes to worker k mod 4.

    python runtime_errors_2_pickling.py           torch's own loader
    antifreeze run runtime_errors_2_pickling.py   the same file on our engine
    ARTICLES_START_METHOD=spawn …                 either of them with another start method
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
# --- end ---
# fmt: on

# --- driver, not in the article: the batches once more, and a look at every sample ---
torch.manual_seed(2025)
base_seed = int(torch.empty((), dtype=torch.int64).random_())
streams = [random.Random(base_seed + worker) for worker in range(4)]
wanted = [index * streams[index // 10 % 4].random() for index in range(100)]
torch.manual_seed(2025)
arrived = [float(sample) for batch in loader for sample in batch]

right = sum(sample == want for sample, want in zip(arrived, wanted, strict=False))
print(f"samples right: {right} of {len(wanted)}")
raise SystemExit(not right == len(arrived) == len(wanted))
