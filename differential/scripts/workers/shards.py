"""Sharding by worker in worker_init_fn, as PyTorch's documentation has it."""

import math
import sys
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class MyIterableDataset(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        return iter(range(self.start, self.end))


def worker_init_fn(worker_id):
    worker_info = get_worker_info()
    dataset = worker_info.dataset
    overall_start, overall_end = dataset.start, dataset.end
    per_worker = math.ceil((overall_end - overall_start) / worker_info.num_workers)
    dataset.start = overall_start + worker_id * per_worker
    dataset.end = min(dataset.start + per_worker, overall_end)


if __name__ == "__main__":
    ds = MyIterableDataset(3, 12)
    print(list(DataLoader(ds, num_workers=0)))
    print(list(DataLoader(ds, num_workers=2, multiprocessing_context=sys.argv[1])))
    print(list(DataLoader(ds, num_workers=2, worker_init_fn=worker_init_fn, multiprocessing_context=sys.argv[1])))
    print(
        list(DataLoader(ds, num_workers=5, worker_init_fn=worker_init_fn, multiprocessing_context=sys.argv[1]))
    ) if sys.argv[1] == "fork" else None
