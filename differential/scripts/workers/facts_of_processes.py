"""What a worker sees of itself as a process."""

import multiprocessing
import os
import sys
import threading
from torch.utils.data import DataLoader, Dataset


class Facts(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        process = multiprocessing.current_process()
        return (
            threading.current_thread() is threading.main_thread(),
            threading.current_thread().name,
            multiprocessing.parent_process().name,
            os.getpid() != int(os.environ["TRAINER"]),
            os.getcwd() == os.environ["HERE"],
            sys.argv[1:],
            len(multiprocessing.active_children()),
            process.is_alive(),
            os.getsid(0) == int(os.environ["SESSION"]),
        )


if __name__ == "__main__":
    os.environ |= {"TRAINER": str(os.getpid()), "HERE": os.getcwd(), "SESSION": str(os.getsid(0))}
    for row in DataLoader(Facts(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(row)
    print(len(multiprocessing.active_children()))
