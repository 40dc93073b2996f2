"""A main guard that is an expression, and a class inside `try`: a spawned worker imports the module all the same."""
# cold: needs an interpreter of its own

# methods: fork spawn forkserver
import sys
from torch.utils.data import DataLoader, Dataset

SCALE = 1
KINDS = []

try:
    from fast_but_not_installed import Scaled
except ImportError:

    class Scaled(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return i * SCALE, len(KINDS), KINDS[0] is type(self)


KINDS.append(Scaled)


def main():
    global SCALE
    SCALE = 10
    KINDS.append(None)
    print(*DataLoader(Scaled(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]))


__name__ == "__main__" and main()
