"""Looks sick: a lock that all workers share is taken for every sample. But only to add one to a counter."""

import multiprocessing

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N = 400


class Counted(Dataset):
    def __init__(self):
        self.served = multiprocessing.Value("l", 0)
        self.lock = multiprocessing.Lock()
        self.slowest = multiprocessing.Array("d", 2)

    def __len__(self):
        return N

    def __getitem__(self, index):
        x = torch.sin(torch.arange(64) * (1 + index % 4) / 10)
        with self.served.get_lock():
            self.served.value += 1
        with self.lock:
            self.slowest[index % 2] = max(self.slowest[index % 2], index)
        return x, index % 4, index


def main():
    torch.manual_seed(0)
    dataset = Counted()
    loader = DataLoader(dataset, batch_size=20, shuffle=True, num_workers=2)
    model = nn.Linear(64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(2):
        indices = []
        for x, y, index in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            indices += index.tolist()
        print(f"epoch {epoch}: {dataset.served.value} served so far, loss {loss.item():.3f}")
        assert sorted(indices) == list(range(N))
    assert loss.item() < 0.2
    print("OK")


if __name__ == "__main__":
    main()
