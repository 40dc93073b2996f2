"""A sample has a time limit by SIGALRM."""

import signal
import sys
import time
from torch.utils.data import DataLoader, Dataset


class TooSlow(Exception):
    pass


def give_up(number, frame):
    raise TooSlow


class Limited(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, 0.2 if i == 2 else 60)
        try:
            time.sleep(0.6 if i == 2 else 0)
            return i
        except TooSlow:
            return -1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    print(list(DataLoader(Limited(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1])))
