"""Exceptions that cannot be made from a message alone: what they are caught as."""

# methods: fork
from torch.utils.data import DataLoader, Dataset


class NotFound(LookupError):
    def __init__(self, key, where):
        super().__init__(f"{key} in {where}")
        self.key = key


class Faulty(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        if i:
            raise NotFound(i, "table")
        return b"\xff".decode()


it = iter(DataLoader(Faulty(), num_workers=1))
for _ in range(2):
    try:
        next(it)
    except Exception as error:
        print(type(error).__name__)
