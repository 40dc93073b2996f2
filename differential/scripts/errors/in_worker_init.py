"""A worker_init_fn that fails: the error of the first batch."""

import sys
from torch.utils.data import DataLoader


def begin(number):
    raise ConnectionError(f"worker {number} has no connection")


if __name__ == "__main__":
    try:
        for batch in DataLoader(range(4), num_workers=1, worker_init_fn=begin, multiprocessing_context=sys.argv[1]):
            print(batch)
    except ConnectionError as error:
        print(type(error).__name__, str(error).splitlines()[0])
