"""Article 'runtime errors', example 3: an OpenCV call in every sample.

The article throws the batches away; the driver loads them again and compares every sample.

    python runtime_errors_3_opencv.py           torch's own loader
    antifreeze run runtime_errors_3_opencv.py   the same file on our engine
    ARTICLES_START_METHOD=spawn …               either of them with another start method
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
import cv2  # OpenCV
import numpy as np
import os

class ImageDataset(Dataset):
    def __init__(self, size):
        self.data = [np.random.randint(0, 256, size=(100,100,3), dtype=np.uint8) for _ in range(size)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        img = self.data[idx]
        img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB) # OpenCV operation
        return img

dataset = ImageDataset(size=100)

# Set the correct OpenCV setting using environment variable to prevent issue on Linux
os.environ["OPENCV_OPENMP_NUM_THREADS"]="1"
loader = DataLoader(dataset, batch_size=10, num_workers=4)

for batch in loader:
    pass
# --- end ---
# fmt: on

# --- driver, not in the article: the batches once more, and a look at every sample ---
wanted = [image[:, :, ::-1] for image in dataset.data]
arrived = [sample for batch in loader for sample in batch.numpy()]

right = sum(np.array_equal(sample, want) for sample, want in zip(arrived, wanted, strict=False))
print(f"samples right: {right} of {len(wanted)}")
raise SystemExit(not right == len(arrived) == len(wanted))
