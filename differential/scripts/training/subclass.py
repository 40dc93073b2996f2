"""A subclass of DataLoader, with another __iter__ and another __len__."""

import sys
from torch.utils.data import DataLoader


class Limited(DataLoader):
    def __init__(self, *args, limit, **options):
        super().__init__(*args, **options)
        self.limit = limit

    def __len__(self):
        return min(self.limit, super().__len__())

    def __iter__(self):
        for number, batch in enumerate(super().__iter__()):
            if number == self.limit:
                return
            yield {"number": number, "batch": batch}


if __name__ == "__main__":
    loader = Limited(range(20), batch_size=2, num_workers=2, limit=3, multiprocessing_context=sys.argv[1])
    for _ in range(2):
        print(len(loader), list(loader))
