"""An evaluation by a second loader in the middle of an epoch of the first."""

import sys
import torch
from torch.utils.data import DataLoader

if __name__ == "__main__":
    torch.manual_seed(1)
    train = DataLoader(range(12), batch_size=2, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[1])
    valid = DataLoader(range(100, 106), batch_size=3, shuffle=True, num_workers=1, multiprocessing_context=sys.argv[1])
    for epoch in range(2):
        for step, batch in enumerate(train):
            print("train", batch.tolist())
            if step % 3 == 2:
                print("valid", [each.tolist() for each in valid])
