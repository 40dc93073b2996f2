"""The epoch number reaches kept workers by a shared value, and by a tensor in shared memory."""

import multiprocessing
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Scheduled(Dataset):
    def __init__(self, context):
        self.epoch, self.level = context.Value("i", 0), torch.zeros(1).share_memory_()

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return i, self.epoch.value, self.level.item()


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    dataset = Scheduled(context)
    loader = DataLoader(
        dataset,
        batch_size=4,
        num_workers=1,
        persistent_workers=True,
        prefetch_factor=1,
        multiprocessing_context=context,
    )
    for epoch in range(3):
        dataset.epoch.value = epoch
        dataset.level.fill_(epoch / 2)
        print(*loader)
