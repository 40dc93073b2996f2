"""Strides of batches: transposes, channels last, expanded samples, NumPy's order."""

# methods: fork
import numpy as np
import torch
from torch.utils.data import DataLoader

x = torch.arange(24.0).reshape(2, 3, 4)
samples = [
    x,
    x.permute(2, 0, 1),
    x[:, ::2],
    x[0, 0].expand(3, 4),
    x.unsqueeze(0).contiguous(memory_format=torch.channels_last),
    np.asfortranarray(x.numpy()),
    x.numpy()[::-1].copy(),
]
for sample in samples:
    for options in (dict(batch_size=2), dict(batch_size=None), dict(batch_size=2, collate_fn=list)):
        batch = next(iter(DataLoader([sample] * 2, num_workers=1, **options)))
        first = batch[0] if isinstance(batch, list) else batch
        print(
            options.get("batch_size"),
            tuple(first.shape),
            first.stride() if isinstance(first, torch.Tensor) else first.strides,
            float(first.sum()),
        )
