"""Loops under no_grad and inference_mode: what batches are."""

import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    dataset = TensorDataset(torch.arange(6.0))
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            for (batch,) in DataLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context=sys.argv[1]):
                print(mode.__name__, batch, batch.is_inference(), batch.requires_grad, (batch * 2).is_inference())
