"""Batches of sequences of about the same length, padded by the collate function."""

import random
import sys
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset):
    def __init__(self):
        self.lengths = [3, 9, 4, 1, 8, 2, 7, 5]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.arange(self.lengths[i]) + 10 * i


class Buckets:
    def __init__(self, lengths, size):
        self.lengths, self.size = lengths, size

    def __len__(self):
        return (len(self.lengths) + self.size - 1) // self.size

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=self.lengths.__getitem__)
        batches = [order[k : k + self.size] for k in range(0, len(order), self.size)]
        random.shuffle(batches)
        return iter(batches)


def pad(samples):
    return pad_sequence(samples, batch_first=True, padding_value=-1), torch.tensor([len(each) for each in samples])


if __name__ == "__main__":
    random.seed(1)
    dataset = Sequences()
    loader = DataLoader(
        dataset,
        batch_sampler=Buckets(dataset.lengths, 3),
        collate_fn=pad,
        num_workers=2,
        multiprocessing_context=sys.argv[1],
    )
    for _ in range(2):
        print(len(loader), *loader, sep="\n")
