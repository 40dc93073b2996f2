"""A training with determinism: shuffle, augmentation in workers, dropout in the model, evaluation in each epoch."""
# cold: needs an interpreter of its own

# methods: fork spawn forkserver
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, length, noisy):
        g = torch.Generator().manual_seed(length)
        self.x, self.noisy = torch.randn(length, 4, generator=g), noisy
        self.y = (self.x.sum(dim=1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        return (x + 0.1 * torch.randn(4) if self.noisy else x), self.y[i]


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(
        Points(40, noisy=True),
        batch_size=8,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context=sys.argv[1],
    )
    valid = DataLoader(
        Points(16, noisy=False),
        batch_size=8,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context=sys.argv[1],
    )
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(3):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in valid)
        print(epoch, loss.item(), right)
    torch.save(model.state_dict(), "model.pt")
