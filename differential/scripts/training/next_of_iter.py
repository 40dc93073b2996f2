"""next(iter(loader)) for a look at the data, many times."""

import sys
import torch
from torch.utils.data import DataLoader

if __name__ == "__main__":
    torch.manual_seed(2)
    loader = DataLoader(range(20), batch_size=4, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[1])
    for _ in range(3 if sys.argv[1] == "fork" else 1):
        print(next(iter(loader)))
    print(next(iter(loader)), len(loader), torch.rand(1))
