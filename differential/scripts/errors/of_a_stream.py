"""An iterable dataset that fails in the middle, and one whose __iter__ fails."""

import sys
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, where):
        self.where = where

    def __iter__(self):
        if self.where == "iter":
            raise OSError("cannot be opened")
        return self.items()

    def items(self):
        yield from range(5)
        raise ValueError("the stream broke")


if __name__ == "__main__":
    for where in ("iter", "items"):
        it = iter(DataLoader(Stream(where), batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1]))
        for _ in range(4):
            try:
                print(next(it))
            except StopIteration:
                print("end")
                break
            except Exception as error:
                print(type(error).__name__, str(error).splitlines()[0])
