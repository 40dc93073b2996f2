"""os.chdir before the loader, between epochs and in a worker; and the umask."""

import os
import sys
from torch.utils.data import DataLoader, Dataset


class Folders(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        where = os.path.basename(os.getcwd())
        os.chdir("..")
        umask = os.umask(0)
        os.umask(umask)
        return where, umask


if __name__ == "__main__":
    os.makedirs("a/b/c")
    os.umask(0o027)
    loader = DataLoader(Folders(), batch_size=None, num_workers=1, multiprocessing_context=sys.argv[1])
    os.chdir("a/b/c")
    print(*loader)
    os.chdir("..")
    print(*loader, os.path.basename(os.getcwd()))
