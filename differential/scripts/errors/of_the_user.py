"""Exceptions of the user's, with attributes, a base class and a cause."""

import sys
from torch.utils.data import DataLoader, Dataset


class DataError(Exception):
    pass


class BrokenImage(DataError):
    def __init__(self, message="broken"):
        super().__init__(message)
        self.path = "a.jpg"


class Faulty(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i == 1:
            raise BrokenImage
        if i == 2:
            try:
                {}["x"]
            except KeyError as error:
                raise DataError("wrapped") from error
        return i


if __name__ == "__main__":
    it = iter(DataLoader(Faulty(), batch_size=None, num_workers=1, multiprocessing_context=sys.argv[1]))
    while True:
        try:
            print(next(it))
        except StopIteration:
            break
        except DataError as error:
            print(type(error).__name__, str(error).splitlines()[0], isinstance(error, BrokenImage))
