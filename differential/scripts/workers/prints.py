"""Workers print, with and without a flush."""

import sys
import time
from torch.utils.data import DataLoader, Dataset


class Printing(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        print("sample", i, flush=i != 1)
        sys.stdout.write(f"wrote {i}\n")
        return i


if __name__ == "__main__":
    print("begin", flush=True)
    for batch in DataLoader(Printing(), num_workers=1, prefetch_factor=1, multiprocessing_context=sys.argv[1]):
        pass
    time.sleep(0.5)
    print("end", flush=True)
