"""Errors of many types in __getitem__, each caught as what it is."""

import sys
from torch.utils.data import DataLoader, Dataset

ERRORS = [
    ValueError("v"),
    KeyError("k"),
    IndexError("i"),
    OSError(2, "no such", "file"),
    RuntimeError(),
    AssertionError("a"),
    TypeError("t"),
    AttributeError("x"),
    ZeroDivisionError("z"),
    NotImplementedError(),
    MemoryError("m"),
    FileNotFoundError(2, "no"),
    EOFError("e"),
    LookupError("l"),
    RecursionError("deep"),
    PermissionError("p"),
]


class Faulty(Dataset):
    def __len__(self):
        return len(ERRORS)

    def __getitem__(self, i):
        raise ERRORS[i]


if __name__ == "__main__":
    it = iter(DataLoader(Faulty(), batch_size=1, num_workers=2, multiprocessing_context=sys.argv[1]))
    for _ in ERRORS:
        try:
            next(it)
        except Exception as error:
            print(
                type(error).__name__,
                str(error).splitlines()[0],
                "|",
                [line for line in str(error).splitlines() if "Error" in line][-1],
            )
