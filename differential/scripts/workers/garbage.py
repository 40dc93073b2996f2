"""Objects with __del__ and reference cycles in workers; gc is disabled by the trainer."""

# methods: fork
import gc
import weakref
from torch.utils.data import DataLoader, Dataset


class Node:
    deleted = 0

    def __init__(self):
        self.itself = self

    def __del__(self):
        Node.deleted += 1


class Cycles(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        reference = weakref.ref(Node())
        if i % 3 == 2:
            gc.collect()
        return reference() is None, Node.deleted, gc.isenabled()


gc.disable()
for row in DataLoader(Cycles(), batch_size=None, num_workers=1):
    print(row)
print(Node.deleted, gc.isenabled())
