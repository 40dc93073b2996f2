"""A worker kills itself: an error on torch."""

# methods: fork
import os
import signal
from torch.utils.data import DataLoader, Dataset


class Dying(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return i


try:
    print(list(DataLoader(Dying(), num_workers=1, batch_size=None)))
except RuntimeError as error:
    print("RuntimeError", "exited unexpectedly" in str(error))
