"""sqlite3, one connection for each worker."""

import os
import sqlite3
import sys
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.path, self.connections = path, {}

    def __len__(self):
        return 8

    def __getitem__(self, i):
        connection = self.connections.get(os.getpid())
        if connection is None:
            connection = self.connections[os.getpid()] = sqlite3.connect(self.path)
        return connection.execute("SELECT name, value FROM items WHERE id = ?", (i,)).fetchone()


if __name__ == "__main__":
    with sqlite3.connect("items.db") as connection:
        connection.execute("CREATE TABLE items (id INTEGER, name TEXT, value REAL)")
        connection.executemany("INSERT INTO items VALUES (?, ?, ?)", [(i, f"n{i}", i / 2) for i in range(8)])
    connection.close()
    for batch in DataLoader(Rows("items.db"), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
    os.remove("items.db")
