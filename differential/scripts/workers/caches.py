"""lru_cache, class attributes and module-level dictionaries: one of each for each worker."""

import functools
import sys
from torch.utils.data import DataLoader, Dataset

STORE = {}
calls = 0


@functools.lru_cache(maxsize=None)
def square(i):
    global calls
    calls += 1
    return i * i


class Caches(Dataset):
    made = 0

    def __len__(self):
        return 6

    def __getitem__(self, i):
        Caches.made += 1
        STORE[i] = square(i % 2)
        return i, square.cache_info().hits, calls, Caches.made, len(STORE)


if __name__ == "__main__":
    for kept in (False, True):
        loader = DataLoader(
            Caches(), batch_size=None, num_workers=2, persistent_workers=kept, multiprocessing_context=sys.argv[1]
        )
        for epoch in range(2):
            print(kept, epoch, list(loader))
    print(square.cache_info().misses, calls, Caches.made, STORE)
