"""Generators, process ids and threads at the top level of a module: spawned workers import it themselves."""

# methods: spawn forkserver
import os
import sys
import state
from torch.utils.data import DataLoader, Dataset


class FromModule(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return i, state.NUMPY.random(), state.PYTHON.random(), state.PID == os.getpid(), state.UID


class FromThread(FromModule):
    def __getitem__(self, i):
        return i, state.ask(i)


if __name__ == "__main__":
    rows = list(DataLoader(FromModule(), num_workers=2, batch_size=None, multiprocessing_context=sys.argv[1]))
    print(
        "numpy",
        len({row[1] for row in rows}),
        "random",
        len({row[2] for row in rows}),
        "own pid",
        {row[3] for row in rows},
        "uids",
        len({row[4] for row in rows}),
    )
    try:
        print(list(DataLoader(FromThread(), num_workers=2, batch_size=None, multiprocessing_context=sys.argv[1])))
    except Exception as error:
        print("thread", type(error).__name__)
