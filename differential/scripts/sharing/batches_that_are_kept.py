"""Batches, views of them and NumPy arrays over them are kept and changed while the loop goes on."""

# methods: fork spawn
import copy
import gc
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    dataset = TensorDataset(torch.arange(60.0).reshape(30, 2))
    kept, views, arrays, copies, shared = [], [], [], [], []
    for number, (batch,) in enumerate(
        DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    ):
        kept.append(batch)
        views.append(batch[1:].t())
        arrays.append(batch.numpy())
        copies.append(copy.deepcopy(batch))
        if number % 3 == 0:
            batch.mul_(-1)
        if number % 4 == 1:
            shared.append(batch.share_memory_())
        if number % 5 == 4:
            kept.clear()
            gc.collect()
    for group in (kept, views, copies, shared):
        print(torch.stack([each.sum() for each in group]))
    print([float(array.sum()) for array in arrays])
    print([float(copied.abs().sum() - view.abs().sum()) for copied, view in zip(copies, views)])
