"""LMDB that __setstate__ opens."""

# methods: spawn
# needs: lmdb
import shutil
import sys
import lmdb
from torch.utils.data import DataLoader, Dataset


class Database(Dataset):
    def __init__(self, path):
        self.path = path

    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.path = state["path"]
        self.environment = lmdb.open(self.path, readonly=True, max_readers=16)

    def __len__(self):
        return 8

    def __getitem__(self, i):
        with self.environment.begin() as transaction:
            return i, int(transaction.get(b"%d" % i))


if __name__ == "__main__":
    with lmdb.open("db") as environment, environment.begin(write=True) as transaction:
        for i in range(8):
            transaction.put(b"%d" % i, b"%d" % (i * 2))
    print(list(DataLoader(Database("db"), num_workers=2, batch_size=None, multiprocessing_context=sys.argv[1])))
    shutil.rmtree("db")
