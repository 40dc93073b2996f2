"""LMDB, opened in __setstate__ and lazily."""

# needs: lmdb
import shutil
import sys
import lmdb
from torch.utils.data import DataLoader, Dataset


class Database(Dataset):
    def __init__(self, path):
        self.path, self.environment = path, None

    def __getstate__(self):
        return {"path": self.path, "environment": None}

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if self.environment is None:
            self.environment = lmdb.open(self.path, readonly=True, lock=False)
        with self.environment.begin() as transaction:
            return i, int(transaction.get(b"%d" % i))


if __name__ == "__main__":
    with lmdb.open("db") as environment, environment.begin(write=True) as transaction:
        for i in range(8):
            transaction.put(b"%d" % i, b"%d" % (i * 2))
    for batch in DataLoader(Database("db"), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
    shutil.rmtree("db")
