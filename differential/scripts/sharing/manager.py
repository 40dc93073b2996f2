"""A dictionary of a multiprocessing.Manager as the cache of all workers."""

import multiprocessing
import sys
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self, cache):
        self.cache = cache

    def __len__(self):
        return 6

    def __getitem__(self, i):
        known = i in self.cache
        self.cache[i] = i * i
        return i, known


if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        cache = manager.dict()
        for epoch in range(2):
            print(list(DataLoader(Cached(cache), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1])))
        print(sorted(cache.items()))
