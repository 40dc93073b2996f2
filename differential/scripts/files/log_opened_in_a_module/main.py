"""A log that a module of the program opens for writing; a lock that is held would have workers start afresh."""
# cold: needs an interpreter of its own

# methods: fork
import threading

import mylog
from torch.utils.data import DataLoader, Dataset


class Held(Dataset):
    def __init__(self):
        self.lock = threading.Lock()

    def __len__(self):
        return 2

    def __getitem__(self, i):
        mylog.note(f"sample {i}")
        return i


if __name__ == "__main__":
    mylog.note("begin")
    dataset = Held()
    dataset.lock.acquire()
    print(*DataLoader(dataset, num_workers=1, batch_size=None))
    mylog.note("end")
