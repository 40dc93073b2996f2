"""Claim: "rerunning with num_workers=0 may give better error trace"."""

import sys
from collections.abc import Callable

from torch.utils.data import DataLoader, Dataset

from trying import outcome


class Sample:
    def __init__(self, index: int) -> None:
        self.index = index
        self.decode: Callable[[], int] = lambda: index  # cannot be pickled


class Samples(Dataset[Sample]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Sample:
        return Sample(index)


def as_list(samples: list[Sample]) -> list[Sample]:
    return samples


if __name__ == "__main__":
    if len(sys.argv) > 1:
        loader = DataLoader(Samples(), batch_size=2, collate_fn=as_list, num_workers=int(sys.argv[1]))
        print(sum(len(batch) for batch in loader), "of 8 samples, no error")
    else:
        print("num_workers=2:", outcome(__file__, "2"))
        print("num_workers=0:", outcome(__file__, "0"))
