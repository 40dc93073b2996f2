"""A temporary folder of the trainer, and temporary files of workers."""

import os
import sys
import tempfile
from torch.utils.data import DataLoader, Dataset


class Temporary(Dataset):
    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 4

    def __getitem__(self, i):
        with tempfile.NamedTemporaryFile("w+", dir=self.folder) as file:
            file.write("x" * i)
            file.flush()
            return os.path.getsize(file.name), os.path.basename(tempfile.gettempdir()) == os.path.basename(
                os.environ["HERE"]
            )


if __name__ == "__main__":
    tempfile.tempdir = os.environ["HERE"] = os.environ["TMPDIR"] = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        print(list(DataLoader(Temporary(folder), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])))
        print(os.listdir(folder))
    print(os.path.exists(folder), sorted(os.listdir(".")))
