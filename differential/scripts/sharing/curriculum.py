"""The trainer changes plain and shared tensors of the dataset between epochs of kept workers."""

# methods: fork spawn forkserver
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Curriculum(Dataset):
    def __init__(self):
        self.level, self.plain = torch.zeros(1, dtype=torch.long).share_memory_(), torch.zeros(4)

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return i, self.level.item(), self.plain.sum().item()


if __name__ == "__main__":
    dataset = Curriculum()
    loader = DataLoader(
        dataset,
        num_workers=1,
        batch_size=4,
        multiprocessing_context=sys.argv[1],
        persistent_workers=True,
        prefetch_factor=1,
    )
    for epoch in range(3):
        dataset.level.fill_(epoch * 10)
        dataset.plain += 1
        for batch in loader:
            print(epoch, batch)
