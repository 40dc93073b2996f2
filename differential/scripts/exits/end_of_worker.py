"""What runs at the end of a worker: finalizers of multiprocessing and of weakref, and atexit."""

# methods: fork spawn forkserver
import atexit
import multiprocessing.util
import os
import sys
import time
import weakref
from torch.utils.data import DataLoader, Dataset


class Holding(Dataset):
    def __init__(self):
        self.is_registered = False

    def __len__(self):
        return 4

    def __getitem__(self, i):
        if not self.is_registered:
            self.is_registered = True
            weakref.finalize(self, os.write, 1, b"weakref.finalize\n")
            multiprocessing.util.Finalize(None, os.write, args=(1, b"Finalize\n"), exitpriority=5)
            atexit.register(os.write, 1, b"atexit\n")
        return i


if __name__ == "__main__":
    for batch in DataLoader(Holding(), num_workers=1, batch_size=2, multiprocessing_context=sys.argv[1]):
        print(batch, flush=True)
    time.sleep(0.3)
    print("end", flush=True)
