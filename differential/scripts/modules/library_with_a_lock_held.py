"""A library that is opened by ctypes at the top of the script; a lock that is held has workers start afresh."""
# cold: needs an interpreter of its own

# methods: fork
import ctypes
import threading

from torch.utils.data import DataLoader, Dataset

LIBC = ctypes.CDLL(None)
LIBC.labs.restype = ctypes.c_long


class Held(Dataset):
    def __init__(self):
        self.lock = threading.Lock()

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return LIBC.labs(-i)


if __name__ == "__main__":
    dataset = Held()
    dataset.lock.acquire()
    print(*DataLoader(dataset, num_workers=1, batch_size=None))
