"""Tensors and arrays of all dtypes."""

# methods: fork
import numpy as np
import torch
from torch.utils.data import DataLoader

for dtype in (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
    torch.complex64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e5m2,
):
    batch = next(iter(DataLoader([torch.ones(2, dtype=dtype)] * 2, batch_size=2, num_workers=1)))
    print(batch.dtype, batch.shape, batch.view(torch.uint8).tolist() if dtype != torch.bool else batch.tolist())
for dtype in ("u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?", "c8", "u2"):
    batch = next(iter(DataLoader([np.ones(2, dtype=dtype)] * 2, batch_size=2, num_workers=1)))
    print(batch.dtype, batch.tolist())
for value in (1, 1.5, True, np.float16(1), np.int8(3), np.bool_(True), "s", b"b"):
    print(next(iter(DataLoader([value] * 2, batch_size=2, num_workers=1))))
