"""A worker runs coroutines to fetch the samples of a batch."""

import asyncio
import sys
from torch.utils.data import DataLoader, Dataset


async def fetch(i):
    await asyncio.sleep(0.01)
    return i * 3


class Fetching(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, i):
        return asyncio.run(fetch(i))

    def __getitems__(self, indices):
        async def all_of_them():
            return await asyncio.gather(*map(fetch, indices))

        return asyncio.run(all_of_them())


if __name__ == "__main__":
    for batch in DataLoader(Fetching(), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
