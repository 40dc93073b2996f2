"""A generator with a finally block, in a worker whose epoch is read to the end and in one that is left early."""

import sys
import time
from pathlib import Path
from torch.utils.data import DataLoader, IterableDataset


class Careful(IterableDataset):
    def __init__(self, name):
        self.name = name

    def __iter__(self):
        try:
            yield from range(4)
        finally:
            Path(f"{self.name}.txt").write_text("closed")


if __name__ == "__main__":
    print(list(DataLoader(Careful("whole"), num_workers=1, multiprocessing_context=sys.argv[1])))
    kept = DataLoader(Careful("again"), num_workers=1, multiprocessing_context=sys.argv[1], persistent_workers=True)
    print(list(kept), list(kept))
    for batch in DataLoader(Careful("left"), num_workers=1, prefetch_factor=1, multiprocessing_context=sys.argv[1]):
        print(batch)
        break
    deadline = time.monotonic() + 20
    while not Path("left.txt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    print(Path("left.txt").exists())
