"""States of generators are saved in an epoch and restored later."""

# methods: fork spawn
import random
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return i, torch.rand(1).item()


if __name__ == "__main__":
    torch.manual_seed(1)
    loader = DataLoader(Noise(), batch_size=2, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[1])
    state = torch.get_rng_state()
    first = [repr(batch) for batch in loader]
    torch.set_rng_state(state)
    second = [repr(batch) for batch in loader]
    print(first == second, first)
    with torch.random.fork_rng():
        print(torch.initial_seed(), [repr(batch) for batch in loader])
    print(torch.rand(1))
