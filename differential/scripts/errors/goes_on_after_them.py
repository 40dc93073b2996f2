"""A loop that catches the errors of single batches and goes on."""

import sys
from torch.utils.data import DataLoader, Dataset


class Faulty(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        if i % 7 == 3:
            raise ValueError(f"sample {i}")
        return i


if __name__ == "__main__":
    loader = DataLoader(Faulty(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    for epoch in range(2):
        it = iter(loader)
        while True:
            try:
                print(epoch, next(it))
            except StopIteration:
                break
            except ValueError as error:
                print(epoch, "lost", str(error).splitlines()[0])
