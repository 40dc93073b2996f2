"""Tensors that require grad are returned by a dataset."""

# methods: fork
import torch
from torch.utils.data import DataLoader

for collate in (None, list):
    try:
        for batch in DataLoader(
            [torch.ones(2, requires_grad=True) * 2] * 2, batch_size=2, num_workers=1, collate_fn=collate, timeout=8
        ):
            print(batch)
    except RuntimeError as error:
        print("RuntimeError")
