"""Errors of a sampler: at its beginning, at its length, in the middle."""

# methods: fork
from torch.utils.data import DataLoader, Sampler


class Faulty(Sampler):
    def __init__(self, where):
        self.where = where

    def __len__(self):
        if self.where == "len":
            raise ValueError("no length")
        return 6

    def __iter__(self):
        if self.where == "iter":
            raise ValueError("no iterator")
        return self.indices()

    def indices(self):
        yield from range(3)
        if self.where == "next":
            raise ValueError("no more")
        yield from range(3, 6)


for where in ("len", "iter", "nowhere"):
    loader = DataLoader(range(6), sampler=Faulty(where), num_workers=1)
    try:
        print(len(loader))
    except Exception as error:
        print(where, repr(error))
    try:
        print([batch.item() for batch in loader])
    except Exception as error:
        print(where, repr(error))
