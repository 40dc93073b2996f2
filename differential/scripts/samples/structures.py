"""Nested tuples, lists, dictionaries, named tuples, strings and None, collated."""

import sys
from collections import namedtuple, OrderedDict
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

Point = namedtuple("Point", ["x", "y"])


class Structures(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return {
            "name": f"n{i}",
            "point": Point(i, i / 2),
            "list": [i, (np.float32(i), torch.ones(2) * i)],
            "ordered": OrderedDict(b=b"x", a=i > 2),
        }


if __name__ == "__main__":
    for batch in DataLoader(Structures(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch, type(batch["ordered"]).__name__)
