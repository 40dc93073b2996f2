"""Collate functions and init functions of all kinds of callables."""

import functools
import operator
import sys
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Adder:
    def __init__(self, by):
        self.by = by

    def __call__(self, samples):
        return [each + self.by for each in samples]

    def method(self, samples):
        return sum(samples) + self.by

    @classmethod
    def by_class(cls, samples):
        return cls.__name__, samples

    @staticmethod
    def by_static(samples):
        return max(samples)


def scale(by, samples):
    return [each * by for each in samples]


if __name__ == "__main__":
    adder = Adder(100)
    for collate in (
        adder,
        adder.method,
        Adder.by_class,
        Adder.by_static,
        functools.partial(scale, 3),
        len,
        tuple,
        operator.itemgetter(0),
    ):
        print(
            list(
                DataLoader(
                    range(4), batch_size=2, num_workers=1, collate_fn=collate, multiprocessing_context=sys.argv[1]
                )
            )
        )
