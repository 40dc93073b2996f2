"""Environment variables: changed before, between and in workers."""

import os
import sys
from torch.utils.data import DataLoader, Dataset


class Variables(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        os.environ["SEEN"] = str(int(os.environ.get("SEEN", 0)) + 1)
        return os.environ.get("BEFORE"), os.environ.get("BETWEEN"), os.environ["SEEN"], "PATH" in os.environ


if __name__ == "__main__":
    os.environ["BEFORE"] = "1"
    loader = DataLoader(Variables(), batch_size=None, num_workers=1, multiprocessing_context=sys.argv[1])
    print(*loader)
    os.environ["BETWEEN"] = "2"
    del os.environ["BEFORE"]
    print(*loader, os.environ.get("SEEN"))
