"""Digits, a small network, two epochs, a test set: in the style of PyTorch's first example.

https://github.com/pytorch/examples/blob/main/mnist/main.py
"""

import argparse

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Digits(Dataset):
    def __init__(self, transform=None):
        digits = load_digits()
        self.images, self.targets = digits.images[:600], digits.target[:600]
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = self.images[index].astype("float32")
        return self.transform(image) if self.transform else image, int(self.targets[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(72, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return F.log_softmax(self.fc(self.dropout(torch.flatten(x, 1))), dim=1)


def normalise(image):
    return torch.from_numpy((image - 8.0) / 8.0).unsqueeze(0)


def train(args, model, loader, optimizer, epoch):
    model.train()
    for number, (images, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), targets)
        loss.backward()
        optimizer.step()
        if number % args.log_interval == 0:
            print(f"train epoch {epoch} [{number * len(images)}/{len(loader.dataset)}] loss {loss.item():.4f}")


def test(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, targets in loader:
            correct += model(images).argmax(dim=1).eq(targets).sum().item()
    print(f"test accuracy: {correct}/{len(loader.dataset)}")
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--log-interval", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(1)
    train_set, test_set = random_split(Digits(transform=normalise), [500, 100])
    kwargs = {"num_workers": 2, "pin_memory": torch.cuda.is_available()}
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, **kwargs)
    test_loader = DataLoader(test_set, batch_size=100, **kwargs)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        train(args, model, train_loader, optimizer, epoch)
        accuracy = test(model, test_loader)
    assert accuracy > 0.7, accuracy
    print("OK")


if __name__ == "__main__":
    main()
