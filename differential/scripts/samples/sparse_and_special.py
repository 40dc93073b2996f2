"""Sparse tensors, packed sequences, distributions and modules as samples."""

# methods: fork
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
samples = [
    torch.eye(3).to_sparse(),
    torch.eye(3).to_sparse_csr(),
    pack_sequence([torch.ones(3), torch.ones(2)]),
    torch.nn.Linear(2, 2).requires_grad_(False),
    torch.Size([1, 2]),
    torch.device("cpu"),
    torch.finfo(torch.float32).max,
    slice(1, 2),
    Ellipsis,
]
for sample in samples:
    batch = next(iter(DataLoader([sample], batch_size=None, num_workers=1)))
    if isinstance(batch, torch.nn.Module):
        print(batch, batch.weight)
    else:
        print(batch)
