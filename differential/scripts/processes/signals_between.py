"""SIGUSR1 and timers while the loop runs: handlers of the trainer run, and nothing else happens."""

import os
import signal
import sys
from torch.utils.data import DataLoader, Dataset

received = []


class Plain(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return i, len(received)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda number, frame: received.append("user"))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number, batch in enumerate(
        DataLoader(Plain(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    ):
        os.kill(os.getpid(), signal.SIGUSR1)
        print(number, batch)
    print(received)
