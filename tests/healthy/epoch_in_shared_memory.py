"""Looks sick: the epoch is told to a dataset whose workers are kept. But it stands in shared memory, where they see it."""

import multiprocessing

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N = 64


class Curriculum(Dataset):
    def __init__(self):
        self.epoch = multiprocessing.Value("i", 0)
        self.difficulty = torch.zeros(1).share_memory_()

    def set_epoch(self, epoch):
        self.epoch.value = epoch
        self.difficulty[0] = epoch / 10

    def __len__(self):
        return N

    def __getitem__(self, index):
        epoch = self.epoch.value
        generator = torch.Generator().manual_seed(1000 * epoch + index)
        return torch.randn(6, generator=generator) * (0.1 + self.difficulty) + index % 2, index, epoch


def main():
    torch.manual_seed(0)
    dataset = Curriculum()
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(4):
        dataset.set_epoch(epoch)
        indices = []
        for x, index, of_epoch in loader:
            loss = nn.functional.cross_entropy(model(x), index % 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert of_epoch.tolist() == [epoch] * len(index)
            indices += index.tolist()
        assert sorted(indices) == list(range(N))
    assert loss.item() < 0.5, loss.item()
    print("OK")


if __name__ == "__main__":
    main()
