"""A training is broken off, saved with the states of generators, and resumed: the same batches come."""

import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return i, torch.rand(1).item()


def epochs(first, last, method):
    for epoch in range(first, last):
        torch.save(torch.get_rng_state(), "state.pt")
        for batch in DataLoader(Noise(), batch_size=4, shuffle=True, num_workers=2, multiprocessing_context=method):
            print(epoch, batch)


if __name__ == "__main__":
    torch.manual_seed(8)
    epochs(0, 2, sys.argv[1])
    torch.set_rng_state(torch.load("state.pt"))
    epochs(1, 3, sys.argv[1])
