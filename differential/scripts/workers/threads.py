"""A worker has threads: a pool that it starts lazily, and one for each sample."""

import concurrent.futures
import sys
import threading
from torch.utils.data import DataLoader, Dataset


class Threads(Dataset):
    def __init__(self):
        self.pool = None

    def __len__(self):
        return 6

    def __getitem__(self, i):
        if self.pool is None:
            self.pool = concurrent.futures.ThreadPoolExecutor(2)
        results = []
        thread = threading.Thread(target=lambda: results.append(i * 2))
        thread.start()
        thread.join()
        return sum(self.pool.map(lambda k: k * i, range(4))), results


if __name__ == "__main__":
    for row in DataLoader(Threads(), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(row)
