"""Tracebacks as programs log them: the frames of the user are in them."""

import sys
import traceback
from torch.utils.data import DataLoader, Dataset


def decode(i):
    return 1 / (i - 3)


class Faulty(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return decode(i)


if __name__ == "__main__":
    try:
        list(DataLoader(Faulty(), num_workers=1, multiprocessing_context=sys.argv[1]))
    except ZeroDivisionError:
        text = traceback.format_exc()
        print(
            "in __getitem__" in text, "in decode" in text, "return 1 / (i - 3)" in text, "ZeroDivisionError: " in text
        )
        print(text.splitlines()[0], sys.exc_info()[0].__name__)
