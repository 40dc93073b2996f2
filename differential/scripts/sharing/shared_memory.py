"""An array over multiprocessing.shared_memory that workers write to."""

import sys
from multiprocessing import shared_memory
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Block(Dataset):
    def __init__(self, name):
        self.name, self.block = name, None

    def __len__(self):
        return 6

    def __getitem__(self, i):
        if self.block is None:
            self.block = shared_memory.SharedMemory(self.name)
        array = np.ndarray((6,), dtype=np.int64, buffer=self.block.buf)
        array[i] += i
        return int(array[i])


if __name__ == "__main__":
    block = shared_memory.SharedMemory(create=True, size=48)
    array = np.ndarray((6,), dtype=np.int64, buffer=block.buf)
    array[:] = 0
    print(list(DataLoader(Block(block.name), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1])), array)
    del array
    block.close()
    block.unlink()
