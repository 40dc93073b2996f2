"""Workers write into tensors of the dataset: a cache, and a count of hits."""

# methods: fork spawn forkserver
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self):
        self.cache, self.hits = torch.zeros(8), torch.zeros(8, dtype=torch.long)

    def __len__(self):
        return 8

    def __getitem__(self, i):
        self.hits[i] += 1
        if self.hits[i] == 1:
            self.cache[i] = i * 10.0
        return i, self.cache[i].item(), self.hits[i].item()


if __name__ == "__main__":
    dataset = Cached()
    torch.manual_seed(0)
    for epoch in range(3):
        for batch in DataLoader(
            dataset, num_workers=2, batch_size=4, shuffle=True, multiprocessing_context=sys.argv[1]
        ):
            print(epoch, batch)
        print("trainer sees", dataset.hits.tolist(), dataset.cache.tolist())
