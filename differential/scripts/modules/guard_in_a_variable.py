"""A main guard that tests a variable: what the guarded part changes is not there in a spawned worker."""
# cold: needs an interpreter of its own

# methods: fork spawn forkserver
import sys
from torch.utils.data import DataLoader, Dataset

SCALE = 1
KINDS = []
IS_MAIN = __name__ == "__main__"


class Scaled(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return i * SCALE, len(KINDS), KINDS[0] is type(self)


KINDS.append(Scaled)

if IS_MAIN:
    SCALE = 10
    KINDS.append(None)
    print(*DataLoader(Scaled(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]))
