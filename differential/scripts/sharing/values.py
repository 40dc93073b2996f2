"""multiprocessing.Value, Array, Lock, Event and Barrier in a dataset."""

import multiprocessing
import sys
from torch.utils.data import DataLoader, Dataset


class Counting(Dataset):
    def __init__(self, context):
        self.count, self.seen, self.lock, self.flag = (
            context.Value("i", 0),
            context.Array("i", 8),
            context.Lock(),
            context.Event(),
        )

    def __len__(self):
        return 8

    def __getitem__(self, i):
        with self.lock, self.count.get_lock():
            self.count.value += 1
        self.seen[i] += 1
        return i, self.flag.is_set()


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    dataset = Counting(context)
    for epoch in range(3):
        print(list(DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=context)))
        print(dataset.count.value, list(dataset.seen))
        dataset.flag.set()
