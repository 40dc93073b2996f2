"""A shuffle buffer with random, seeded for each worker."""

import random
import sys
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shuffled(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        info = get_worker_info()
        rng, buffer = random.Random(info.seed), []
        for i in range(info.id, 20, info.num_workers):
            buffer.append(i)
            if len(buffer) == self.size:
                yield buffer.pop(rng.randrange(self.size))
        rng.shuffle(buffer)
        yield from buffer


if __name__ == "__main__":
    torch.manual_seed(1)
    loader = DataLoader(Shuffled(4), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1])
    for epoch in range(2):
        print([batch.tolist() for batch in loader])
