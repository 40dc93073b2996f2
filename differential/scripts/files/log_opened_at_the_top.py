"""A log that the script opens for writing outside its main guard; a lock that is held has workers start afresh."""
# cold: needs an interpreter of its own

# methods: fork
import threading

from torch.utils.data import DataLoader, Dataset

LOG = open("log.txt", "w")
LOG.write("header\n")
SCALE = 1


class Held(Dataset):
    def __init__(self):
        self.lock = threading.Lock()

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return scaled(i)


def scaled(i):
    return i * SCALE


if __name__ == "__main__":
    SCALE = 10
    LOG.write("begin\n")
    LOG.flush()
    dataset = Held()
    dataset.lock.acquire()
    print(*DataLoader(dataset, num_workers=1, batch_size=None))
    LOG.write("end\n")
    LOG.close()
