"""__reduce__, __getstate__, __getnewargs__ and copyreg: called as often as torch calls them, with the same result."""

# methods: spawn
import copyreg
import sys
from torch.utils.data import DataLoader, Dataset


class Reduced(Dataset):
    def __init__(self, base, items):
        self.base, self.items = base, items

    def __reduce__(self):
        return Reduced, (self.base + 1, self.items[:3])

    def __len__(self):
        return 5

    def __getitem__(self, i):
        return self.base, len(self.items)


class Registered:
    def __init__(self, text):
        self.text = text

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return self.text


def restore(text):
    return Registered(f"restored {text}")


if __name__ == "__main__":
    copyreg.pickle(Registered, lambda each: (restore, (each.text,)))
    print(*DataLoader(Reduced(1, list(range(10))), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]))
    print(*DataLoader(Registered("x"), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]))
