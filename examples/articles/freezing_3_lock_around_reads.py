"""Article 'freezing', example 3: the reads of example 1 with a `multiprocessing.Lock` around them.

The article only defines the dataset; the driver makes 40 files and the loader, and compares every sample.
The article uses `os` without importing it: a marked line below supplies it.

    python freezing_3_lock_around_reads.py           torch's own loader
    antifreeze run freezing_3_lock_around_reads.py   the same file on our engine
    ARTICLES_START_METHOD=spawn …                    either of them with another start method
"""
# ruff: noqa
# mypy: ignore-errors

# --- driver, not in the article: the import that this example lacks ---
import os

# --- driver, not in the article: the start method under test ---
import torch.multiprocessing

if "ARTICLES_START_METHOD" in os.environ:
    torch.multiprocessing.set_start_method(os.environ["ARTICLES_START_METHOD"], force=True)

# fmt: off
# --- from the article ---
import torch
from torch.utils.data import Dataset, DataLoader
import multiprocessing
from multiprocessing import Lock

class MyDataset(Dataset):
    def __init__(self, data_dir):
        self.data_dir = data_dir
        self.filenames = os.listdir(data_dir)
        self.lock = multiprocessing.Lock()  # Introduce a lock for thread safety

    def __len__(self):
        return len(self.filenames)

    def __getitem__(self, idx):
        filename = os.path.join(self.data_dir, self.filenames[idx])
        with self.lock:  # Acquire the lock before accessing the file
            with open(filename, 'rb') as f:
                data = f.read()
        # ... further processing ...
        return data
# --- end ---
# fmt: on

# --- driver, not in the article: forty files, the loader, and a look at every sample ---
import tempfile

with tempfile.TemporaryDirectory(prefix="articles-") as folder:
    for number in range(40):
        with open(os.path.join(folder, f"{number:02}.bin"), "wb") as file:
            file.write(bytes([number]) * (1000 + number))
    dataset = MyDataset(folder)
    loader = DataLoader(dataset, batch_size=10, num_workers=4)
    wanted = [bytes([int(name[:2])]) * (1000 + int(name[:2])) for name in dataset.filenames]
    arrived = [sample for batch in loader for sample in batch]

right = sum(sample == want for sample, want in zip(arrived, wanted, strict=False))
print(f"samples right: {right} of {len(wanted)}")
raise SystemExit(not right == len(arrived) == len(wanted))
