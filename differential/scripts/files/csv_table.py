"""A CSV file, read into memory by __init__; columns are chosen by the collate function."""

import csv
import functools
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Table(Dataset):
    def __init__(self, path):
        with open(path, newline="") as file:
            self.rows = list(csv.DictReader(file))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def select(columns, rows):
    return torch.tensor([[float(row[name]) for name in columns] for row in rows]), [row["name"] for row in rows]


if __name__ == "__main__":
    with open("table.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "a", "b"])
        writer.writerows([f"n{i}", i, i * 2] for i in range(7))
    for batch in DataLoader(
        Table("table.csv"),
        batch_size=3,
        num_workers=2,
        collate_fn=functools.partial(select, ("b", "a")),
        multiprocessing_context=sys.argv[1],
    ):
        print(batch)
