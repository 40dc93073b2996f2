"""A dataset that hands attributes on to the one that it wraps."""

import sys
from torch.utils.data import DataLoader, Dataset


class Plain(Dataset):
    classes = ("a", "b")

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return i, self.classes[i % 2]


class Wrapper(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        return self.inner[i], len(self.classes)


if __name__ == "__main__":
    loader = DataLoader(Wrapper(Wrapper(Plain())), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])
    print(loader.dataset.classes, *loader)
