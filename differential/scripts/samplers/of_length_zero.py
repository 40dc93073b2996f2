"""Datasets of length zero, of length one, and drop_last that leaves nothing."""

# methods: fork spawn
import sys
from torch.utils.data import DataLoader, IterableDataset


class Nothing(IterableDataset):
    def __iter__(self):
        return iter(())


if __name__ == "__main__":
    for data, options in (
        ([], {}),
        ([1], {}),
        ([1, 2], dict(batch_size=3, drop_last=True)),
        (range(3), dict(sampler=[])),
        (range(3), dict(batch_sampler=[])),
        ([], dict(batch_size=None)),
        (Nothing(), {}),
    ):
        loader = DataLoader(data, num_workers=2, multiprocessing_context=sys.argv[1], **options)
        try:
            print(len(loader), end=" ")
        except TypeError:
            print("no length", end=" ")
        print(list(loader), list(loader))
    try:
        list(DataLoader([], shuffle=True, num_workers=1))
    except ValueError as error:
        print(error)
