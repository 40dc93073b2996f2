"""An infinite sampler, and a loop by number of steps."""

# methods: fork spawn
import itertools
import sys
import torch
from torch.utils.data import DataLoader, Sampler


class Forever(Sampler):
    def __init__(self, length):
        self.length = length
        self.asked = 0

    def __iter__(self):
        g = torch.Generator().manual_seed(0)
        while True:
            for index in torch.randperm(self.length, generator=g).tolist():
                self.asked += 1
                yield index


if __name__ == "__main__":
    sampler = Forever(5)
    loader = DataLoader(
        range(5), batch_size=2, sampler=sampler, num_workers=2, prefetch_factor=2, multiprocessing_context=sys.argv[1]
    )
    for step, batch in enumerate(itertools.islice(loader, 7)):
        print(step, batch.tolist())
    try:
        len(loader)
    except TypeError as error:
        print("TypeError", str(error)[:40])
