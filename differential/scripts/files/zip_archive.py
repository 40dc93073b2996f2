"""Members of a zip archive, opened lazily by each worker."""

import io
import sys
import zipfile
import torch
from torch.utils.data import DataLoader, Dataset


class Members(Dataset):
    def __init__(self, path):
        self.path, self.archive = path, None
        with zipfile.ZipFile(path) as archive:
            self.names = sorted(archive.namelist())

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        return torch.load(io.BytesIO(self.archive.read(self.names[i]))), self.names[i]


if __name__ == "__main__":
    with zipfile.ZipFile("data.zip", "w") as archive:
        for i in range(6):
            buffer = io.BytesIO()
            torch.save(torch.full((2,), i), buffer)
            archive.writestr(zipfile.ZipInfo(f"{i}.pt"), buffer.getvalue())
    for batch in DataLoader(Members("data.zip"), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
