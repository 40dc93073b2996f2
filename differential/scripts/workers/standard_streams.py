"""stdin and stdout of workers: input() is at its end, sys.stdout is replaced by the script."""

import contextlib
import io
import sys
from torch.utils.data import DataLoader, Dataset


class Streams(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        buffer = io.StringIO()
        with contextlib.redirect_stdout(buffer):
            print("hidden", i)
        try:
            read = sys.stdin.read(1)
        except Exception as error:
            read = type(error).__name__
        return buffer.getvalue(), read, sys.stdout.isatty()


if __name__ == "__main__":
    print(*DataLoader(Streams(), batch_size=None, num_workers=1, multiprocessing_context=sys.argv[1]))
