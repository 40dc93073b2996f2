"""Random numbers of the operating system: all are different."""

# methods: fork spawn forkserver
import os
import random
import secrets
import sys
import uuid
from torch.utils.data import DataLoader, Dataset


class Unique(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return secrets.token_hex(8), uuid.uuid4().hex, os.urandom(8), random.SystemRandom().random()


if __name__ == "__main__":
    rows = list(DataLoader(Unique(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1]))
    print([len(set(column)) for column in zip(*rows)])
