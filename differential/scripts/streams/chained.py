"""ChainDataset and the sum of iterable datasets."""

# methods: fork
from torch.utils.data import ChainDataset, DataLoader, IterableDataset


class Range(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        return iter(range(self.start, self.end))


for data in (ChainDataset([Range(0, 3), Range(10, 12)]), Range(0, 2) + Range(5, 7)):
    print(list(DataLoader(data, batch_size=2, num_workers=1)), list(DataLoader(data, batch_size=None, num_workers=2)))
