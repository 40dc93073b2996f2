"""Claim: a sample that is None gives "batch must contain tensors … found NoneType"."""

import torch
from torch.utils.data import DataLoader, Dataset


class Holes(Dataset[torch.Tensor | None]):
    def __init__(self, *missing: int) -> None:
        self.missing = missing

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor | None:
        return None if index in self.missing else torch.ones(3)


class Ragged(Dataset[torch.Tensor]):
    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(self.sizes[index])


def said_by(dataset: Dataset[object]) -> str:
    try:
        for _ in DataLoader(dataset, batch_size=4, num_workers=1):
            pass
    except Exception as error:  # noqa: BLE001 - whatever torch makes of it
        return str(error).strip().splitlines()[-1]
    return "nothing"


if __name__ == "__main__":
    print("None first in its batch:", said_by(Holes(4)))  # type: ignore[arg-type]
    print("None in another place:", said_by(Holes(6)))  # type: ignore[arg-type]
    print("sizes 3, 4, 5, 6:", said_by(Ragged(3, 4, 5, 6)))  # type: ignore[arg-type]
    print("sizes 6, 5, 4, 3:", said_by(Ragged(6, 5, 4, 3)))  # type: ignore[arg-type]
