"""default_collate learns a new type by its map."""

import sys
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils.collate import collate, default_collate_fn_map


class Words:
    def __init__(self, text):
        self.text = text


def join_words(batch, *, collate_fn_map=None):
    return " ".join(each.text for each in batch)


default_collate_fn_map[Words] = join_words


def by_own_map(samples):
    return collate(
        samples,
        collate_fn_map={
            Words: lambda batch, *, collate_fn_map=None: len(batch),
            tuple: lambda batch, *, collate_fn_map=None: [
                collate(list(part), collate_fn_map=collate_fn_map) for part in zip(*batch)
            ],
            int: lambda batch, *, collate_fn_map=None: sum(batch),
        },
    )


class Texts(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return Words(f"w{i}"), i


if __name__ == "__main__":
    for collate_fn in (None, by_own_map):
        for batch in DataLoader(
            Texts(), batch_size=2, num_workers=2, collate_fn=collate_fn, multiprocessing_context=sys.argv[1]
        ):
            print(batch)
