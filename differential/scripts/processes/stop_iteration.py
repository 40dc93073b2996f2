"""A dataset that raises StopIteration in __getitem__."""

# methods: fork
from torch.utils.data import DataLoader, Dataset


class Stopping(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i == 2:
            raise StopIteration
        return i


try:
    print(list(DataLoader(Stopping(), num_workers=1, batch_size=None)))
except RuntimeError as error:
    print("RuntimeError")
