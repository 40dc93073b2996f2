"""Data classes and enumerations, collated by the user's function."""

import enum
import sys
from dataclasses import dataclass
import torch
from torch.utils.data import DataLoader, Dataset


class Split(enum.Enum):
    TRAIN = "train"
    TEST = "test"


@dataclass(frozen=True)
class Example:
    image: torch.Tensor
    label: int
    split: Split


@dataclass
class Batch:
    images: torch.Tensor
    labels: torch.Tensor
    splits: list

    @classmethod
    def of(cls, examples):
        return cls(
            torch.stack([each.image for each in examples]),
            torch.tensor([each.label for each in examples]),
            [each.split for each in examples],
        )


class Examples(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return Example(torch.full((2,), float(i)), i, Split.TRAIN if i % 2 else Split.TEST)


if __name__ == "__main__":
    for batch in DataLoader(
        Examples(), batch_size=3, num_workers=2, collate_fn=Batch.of, multiprocessing_context=sys.argv[1]
    ):
        print(batch, batch.splits[0] is Split.TEST)
    print(next(iter(DataLoader(Examples(), batch_size=None, num_workers=1, multiprocessing_context=sys.argv[1]))))
