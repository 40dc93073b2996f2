"""torch.multiprocessing.set_sharing_strategy("file_system"), which many programs set against too many open files."""

import sys
import torch
import torch.multiprocessing
from torch.utils.data import DataLoader

torch.multiprocessing.set_sharing_strategy("file_system")

if __name__ == "__main__":
    held = list(
        DataLoader(
            [torch.full((3,), float(i)) for i in range(8)],
            batch_size=2,
            num_workers=2,
            multiprocessing_context=sys.argv[1],
        )
    )
    print(held, torch.multiprocessing.get_sharing_strategy())
