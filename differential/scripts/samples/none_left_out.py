"""Samples that cannot be read are None, and the collate function leaves them out."""

import sys
from torch.utils.data import DataLoader, Dataset, default_collate


class Leaky(Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, i):
        return None if i % 3 == 1 else (i, f"s{i}")


def collate_present(samples):
    present = [each for each in samples if each is not None]
    return default_collate(present) if present else None


if __name__ == "__main__":
    for batch in DataLoader(
        Leaky(), batch_size=2, num_workers=2, collate_fn=collate_present, multiprocessing_context=sys.argv[1]
    ):
        print(batch)
