"""Workers report through a queue of multiprocessing that the dataset holds."""

import multiprocessing
import sys
from torch.utils.data import DataLoader, Dataset


class Reporting(Dataset):
    def __init__(self, reports):
        self.reports = reports

    def __len__(self):
        return 6

    def __getitem__(self, i):
        self.reports.put((i, i * i))
        return i


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    reports = context.SimpleQueue()
    print(list(DataLoader(Reporting(reports), batch_size=2, num_workers=2, multiprocessing_context=context)))
    print(sorted(reports.get() for _ in range(6)), reports.empty())
