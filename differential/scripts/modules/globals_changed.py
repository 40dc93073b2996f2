"""Globals and class attributes that the main guard changes: seen by forked workers, not by spawned ones."""
# cold: needs an interpreter of its own

# methods: fork spawn forkserver
import sys
from torch.utils.data import DataLoader, Dataset

SCALE = 1
TABLE = {"a": 1}


class Scaled(Dataset):
    offset = 0

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return i * SCALE, sorted(TABLE), Scaled.offset


if __name__ == "__main__":
    SCALE = 10
    TABLE["b"] = 2
    Scaled.offset = 5
    print(*DataLoader(Scaled(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]))
