"""Classes, functions and a sentinel that the main module names by `globals()`, `exec` and `global`, and compares with."""

import sys

from torch.utils.data import DataLoader


class Animal:
    pass


class Sentinel:
    def __reduce__(self):
        return "MISSING"


for name in ("Cat", "Dog"):
    globals()[name] = type(name, (Animal,), {"__module__": __name__})
globals()["MISSING"] = Sentinel()
exec("def plain(x): return x")


def define():
    global Bird

    class Bird(Animal):
        wings = 2


define()


class Animals:
    def __init__(self):
        self.items = [Cat(), Dog(), Bird(), MISSING, plain]  # noqa: F821

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        item = self.items[i]
        return [isinstance(item, (Cat, Dog)), isinstance(item, Bird), item is MISSING, item is plain, Bird.wings]  # noqa: F821


if __name__ == "__main__":
    Bird.wings = 1  # noqa: F821
    for batch in DataLoader(Animals(), num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
