"""Looks sick: a list of strings in the dataset, a worker per processor, results kept in lists. But it is little of each."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAMES = [f"sample-{number:04}" for number in range(1000)]


class Named(Dataset):
    def __init__(self, names):
        self.names = names
        self.labels = {name: number % 2 for number, name in enumerate(names)}

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        digits = torch.tensor([float(digit) for digit in name[-4:]])
        return {"name": name, "digits": digits, "label": self.labels[name]}


def main():
    torch.manual_seed(0)
    loader = DataLoader(Named(NAMES), batch_size=50, shuffle=True, num_workers=min(4, os.cpu_count() or 1))
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, names, outputs, labels = [], [], [], []
    for epoch in range(3):
        names.clear()
        for batch in loader:
            logits = model(batch["digits"])
            loss = nn.functional.cross_entropy(logits, batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            names += batch["name"]
            outputs.append(logits.detach().clone())
            labels.extend(batch["label"].tolist())
        print(f"epoch {epoch}: loss {losses[-1]:.3f}")
        assert sorted(names) == NAMES
    assert torch.cat(outputs).shape == (3000, 2) and len(labels) == 3000
    assert losses[-1] < losses[0]
    print("OK")


if __name__ == "__main__":
    main()
