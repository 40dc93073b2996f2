"""The program ends while global iterators are in the middle of their epoch."""
# cold: needs an interpreter of its own

# methods: fork spawn
import atexit
import sys
from torch.utils.data import DataLoader

if __name__ == "__main__":
    atexit.register(print, "goodbye")
    kept = DataLoader(
        range(20), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1], persistent_workers=True
    )
    first = iter(kept)
    print(next(first))
    second = iter(DataLoader(range(20), batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1]))
    print(next(second))
