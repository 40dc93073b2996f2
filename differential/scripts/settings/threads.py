"""torch.get_num_threads in workers, and torch.set_num_threads in a worker_init_fn."""

import sys
import torch
from torch.utils.data import DataLoader, Dataset


def begin(number):
    torch.set_num_threads(2)


class Threads(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        return torch.get_num_threads(), torch.ones(100, 100).mm(torch.ones(100, 100)).sum().item()


if __name__ == "__main__":
    for function in (None, begin):
        print(
            *DataLoader(
                Threads(), num_workers=1, batch_size=None, worker_init_fn=function, multiprocessing_context=sys.argv[1]
            )
        )
