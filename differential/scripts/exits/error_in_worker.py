"""An error of the dataset is not caught."""

import sys
from torch.utils.data import DataLoader, Dataset


class Faulty(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            raise KeyError(i)
        return i


if __name__ == "__main__":
    for batch in DataLoader(Faulty(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch, flush=True)
