"""Settings of the interpreter that the trainer makes, as workers see them."""

# methods: fork spawn forkserver
import decimal
import locale
import sys
import time
import warnings
from torch.utils.data import DataLoader, Dataset


class Settings(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        return (
            sys.getrecursionlimit(),
            sys.get_int_max_str_digits(),
            decimal.getcontext().prec,
            sys.flags.optimize,
            sys.dont_write_bytecode,
            [each[0] for each in warnings.filters[:1]] == ["error"],
            round(sys.getswitchinterval(), 4),
        )


if __name__ == "__main__":
    sys.setrecursionlimit(5000)
    sys.set_int_max_str_digits(10_000)
    sys.setswitchinterval(0.02)
    decimal.getcontext().prec = 5
    warnings.filterwarnings("error", category=BytesWarning)
    print(*DataLoader(Settings(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]))
