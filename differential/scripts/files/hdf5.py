"""HDF5 by h5py, opened lazily in each worker."""

# needs: h5py
import sys
import h5py
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Table(Dataset):
    def __init__(self, path):
        self.path, self.file = path, None
        with h5py.File(path, "r") as file:
            self.length = len(file["x"])

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.file["x"][i], int(self.file["y"][i])


if __name__ == "__main__":
    with h5py.File("table.h5", "w") as file:
        file["x"], file["y"] = np.arange(20.0).reshape(10, 2), np.arange(10)
    for batch in DataLoader(Table("table.h5"), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
