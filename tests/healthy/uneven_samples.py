"""Looks sick: the first sample of each worker takes two seconds, others differ twentyfold, all sleep. They all come."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N = 80


class Uneven(Dataset):
    index_of_words = None

    def warm_up(self):
        time.sleep(2)  # an index is built, a disk spins up
        self.index_of_words = {number: number % 5 for number in range(N)}

    def __len__(self):
        return N

    def __getitem__(self, index):
        if self.index_of_words is None:
            self.warm_up()
        time.sleep(0.1 if index % 20 == 3 else 0.005)  # a long video among short ones
        frames = 200 if index % 20 == 3 else 10
        return torch.randn(frames, 8).mean(0) / 10 + self.index_of_words[index], index


def main():
    torch.manual_seed(0)
    loader = DataLoader(Uneven(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        indices = []
        for x, index in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), (index % 5).float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            indices += index.tolist()
        assert sorted(indices) == list(range(N))
    assert losses[-1] < losses[0]
    print("OK")


if __name__ == "__main__":
    main()
