"""An LMDB environment that is opened anew for each epoch: it must be gone by then, or it is open twice."""

# methods: fork
# needs: lmdb
import gc
import shutil

import lmdb
from torch.utils.data import DataLoader, Dataset


class Entries(Dataset):
    def __init__(self):
        self.environment = lmdb.open("db", readonly=True, lock=True)

    def __len__(self):
        return 4

    def __getitem__(self, i):
        with self.environment.begin() as transaction:
            return int(transaction.get(str(i).encode()))


if __name__ == "__main__":
    gc.disable()
    with lmdb.open("db", map_size=1 << 20, lock=False) as environment, environment.begin(write=True) as transaction:
        for i in range(4):
            transaction.put(str(i).encode(), str(i * i).encode())
    for _ in range(3):
        print([batch.tolist() for batch in DataLoader(Entries(), batch_size=2, num_workers=1)])
    shutil.rmtree("db")
