"""Article 'freezing', example 2: `__getitem__` catches its own exception and returns None, for every sample.

The article only defines the dataset; the driver makes 40 numbers and the loader, and lets the error come.
There is no right batch to receive: what is wanted is an error that names a sample's index and `None`.

    python freezing_2_exception_in_worker.py           torch's own loader
    antifreeze run freezing_2_exception_in_worker.py   the same file on our engine
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

class MyDataset(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        try:
            # Potential for exceptions based on data characteristics
            result = self.data[idx] / 0  # Example of potential division by zero
            return result
        except Exception as e:
            # INADEQUATE ERROR HANDLING: This exception is likely not handled properly.
            print(f"Error in worker: {e}")
            return None # Returning None will propagate to other parts of the training loop

# --- end ---
# fmt: on

# --- driver, not in the article: forty numbers and the loader ---
# Backwards, so that an index (39 comes first) cannot be taken for a position in the batch.
dataset = MyDataset(list(range(40)))
loader = DataLoader(dataset, batch_size=10, num_workers=4, sampler=range(39, -1, -1))
arrived = [sample for batch in loader for sample in batch]
raise SystemExit(f"no error came, but {len(arrived)} samples")
