"""daemon, names and start methods, as a worker sees them."""

import multiprocessing
import sys
from torch.utils.data import DataLoader, Dataset


class Facts(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return multiprocessing.current_process().daemon, multiprocessing.get_start_method(allow_none=True)


if __name__ == "__main__":
    for row in DataLoader(Facts(), batch_size=None, num_workers=1, multiprocessing_context=sys.argv[1]):
        print(*row, sep="\n")
