"""A batch class with pin_memory, as in PyTorch's documentation; there is no accelerator."""

# methods: fork
import warnings
import torch
from torch.utils.data import DataLoader, TensorDataset


class SimpleCustomBatch:
    def __init__(self, data):
        transposed = list(zip(*data))
        self.inp, self.tgt = torch.stack(transposed[0], 0), torch.stack(transposed[1], 0)

    def pin_memory(self):
        self.inp = self.inp.pin_memory()
        return self


dataset = TensorDataset(torch.arange(10.0).view(5, 2), torch.arange(5))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    warnings.filterwarnings("ignore", "This process .* is multi-threaded")  # of Python 3.12
    for batch in DataLoader(dataset, batch_size=2, collate_fn=SimpleCustomBatch, pin_memory=True, num_workers=1):
        print(batch.inp, batch.tgt, batch.inp.is_pinned())
    print([str(each.message)[:50] for each in caught])
