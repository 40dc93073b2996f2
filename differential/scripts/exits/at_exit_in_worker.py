"""Functions that atexit runs: registered at import, in the trainer and in a worker."""

import atexit
import os
import sys
from torch.utils.data import DataLoader, Dataset


def note(text):
    with open(f"{text}.txt", "a") as file:
        file.write("ran\n")


atexit.register(note, "main" if __name__ == "__main__" else "import in worker")


class Registering(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i == 0:
            atexit.register(note, "registered in worker")
        return i


if __name__ == "__main__":
    for batch in DataLoader(Registering(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]):
        print(batch)
    print("end")
