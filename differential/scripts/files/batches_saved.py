"""Batches are written by torch.save, pickle and numpy.save, and read again."""

# methods: fork spawn
import io
import pickle
import sys
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    dataset = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    for number, (x, y) in enumerate(
        DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])
    ):
        torch.save(x, f"{number}.pt")
        np.save(f"{number}.npy", x.numpy())
        again = pickle.loads(pickle.dumps((x, y)))
        buffer = io.BytesIO()
        torch.save({"x": x, "y": y, "view": x[:1]}, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer)
        print(
            torch.equal(again[0], x),
            torch.load(f"{number}.pt"),
            np.load(f"{number}.npy"),
            loaded["view"],
        )
