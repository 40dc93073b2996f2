"""A sample that takes longer than timeout=; a spawned worker may take as long to start."""

# methods: fork

import sys
import time
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i == 2:
            time.sleep(12)
        return i


if __name__ == "__main__":
    try:
        for batch in DataLoader(Slow(), num_workers=1, timeout=8, multiprocessing_context=sys.argv[1]):
            print(batch, flush=True)
    except RuntimeError as error:
        print(type(error).__name__, str(error).splitlines()[0])
