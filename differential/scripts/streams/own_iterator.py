"""A dataset that is its own iterator, and keeps its place over epochs."""

import sys
from torch.utils.data import DataLoader, IterableDataset


class Counter(IterableDataset):
    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at % 5 == 0:
            raise StopIteration
        return self.at


if __name__ == "__main__":
    dataset = Counter()
    for kept in (False, True):
        loader = DataLoader(dataset, num_workers=1, persistent_workers=kept, multiprocessing_context=sys.argv[1])
        for epoch in range(3):
            print(kept, [batch.item() for batch in loader])
    print(dataset.at)
