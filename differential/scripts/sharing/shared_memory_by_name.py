"""Named shared memory that workers attach to: it lives as long as the program, whatever becomes of workers."""

# methods: fork spawn forkserver
import sys
import time
from multiprocessing import shared_memory

import numpy as np
from torch.utils.data import DataLoader, Dataset


class Cache(Dataset):
    def __init__(self):
        self.memory = shared_memory.SharedMemory(create=True, size=8 * 8)
        self.lay()

    def lay(self):
        self.array = np.ndarray((8,), dtype=np.int64, buffer=self.memory.buf)

    def __getstate__(self):
        return self.memory

    def __setstate__(self, memory):
        self.memory = memory
        self.lay()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.array[index] += index
        return int(self.array[index])


if __name__ == "__main__":
    dataset = Cache()
    dataset.array[:] = 0
    for kept in (False, False, True):
        loader = DataLoader(
            dataset, batch_size=2, num_workers=2, persistent_workers=kept, multiprocessing_context=sys.argv[1]
        )
        print([batch.tolist() for batch in loader], dataset.array.tolist())
        del loader
        time.sleep(0.5)  # whoever would take the memory away has done it then
        shared_memory.SharedMemory(dataset.memory.name).close()
    del dataset.array
    dataset.memory.close()
    dataset.memory.unlink()
