"""A module that only the trainer can import: it was removed from disk, or fails in workers."""

# methods: fork
import os
import sys
from pathlib import Path
from torch.utils.data import DataLoader

Path("gone.py").write_text(
    "class Data:\n    def __len__(self):\n        return 3\n    def __getitem__(self, i):\n        return i * 2\n"
)
import gone

os.remove("gone.py")
print(list(DataLoader(gone.Data(), num_workers=2)))
