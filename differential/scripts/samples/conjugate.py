"""Tensors with the conjugate bit, collated and not."""

# methods: fork
import torch
from torch.utils.data import DataLoader

for options in (dict(batch_size=2), dict(batch_size=None)):
    try:
        print(next(iter(DataLoader([torch.tensor([1 + 2j]).conj()] * 2, num_workers=1, **options))))
    except RuntimeError as error:
        print("RuntimeError")
