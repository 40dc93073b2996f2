"""dataset.set_epoch(): seen by the workers of the next epoch."""

import sys
from torch.utils.data import DataLoader, Dataset


class Staged(Dataset):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 4 + self.epoch

    def __getitem__(self, i):
        return i + 100 * self.epoch


if __name__ == "__main__":
    dataset = Staged()
    loader = DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    for epoch in range(3):
        dataset.set_epoch(epoch)
        print(len(loader), [batch.tolist() for batch in loader])
