"""A loader that starts again by itself, and a prefetcher around it."""

# methods: fork
import torch
from torch.utils.data import DataLoader


def forever(loader):
    while True:
        yield from loader


class Prefetcher:
    def __init__(self, loader):
        self.it = iter(loader)
        self.following = next(self.it, None)

    def __iter__(self):
        while self.following is not None:
            batch, self.following = self.following, next(self.it, None)
            yield batch


torch.manual_seed(0)
stream = forever(DataLoader(range(5), batch_size=2, shuffle=True, num_workers=1))
print([next(stream).tolist() for _ in range(8)])
print([batch.tolist() for batch in Prefetcher(DataLoader(range(7), batch_size=2, num_workers=2))])
