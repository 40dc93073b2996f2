"""A loader made in a function, with a collate function that is local to it: in the style of torchvision's classification.

https://github.com/pytorch/vision/blob/main/references/classification/train.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import default_collate


class Blobs(Dataset):
    def __init__(self, length):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(4, (length,), generator=generator)
        self.points = torch.randn(length, 2, generator=generator) + 4 * torch.stack(
            [self.labels % 2, self.labels // 2], 1
        )

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.points[index], self.labels[index]


class RepeatedSampler(Sampler):
    """Every sample several times in a row, so that a batch holds several augmentations of it."""

    def __init__(self, dataset, repetitions):
        self.dataset, self.repetitions, self.epoch = dataset, repetitions, 0

    def __len__(self):
        return len(self.dataset)

    def __iter__(self):
        order = torch.randperm(len(self.dataset), generator=torch.Generator().manual_seed(self.epoch)).tolist()
        repeated = [index for index in order for _ in range(self.repetitions)]
        return iter(repeated[: len(self.dataset)])

    def set_epoch(self, epoch):
        self.epoch = epoch


class RandomMixup:
    def __init__(self, num_classes, alpha):
        self.num_classes, self.alpha = num_classes, alpha

    def __call__(self, batch, target):
        target = nn.functional.one_hot(target, self.num_classes).to(batch.dtype)
        share = float(torch._sample_dirichlet(torch.tensor([self.alpha, self.alpha]))[0])
        return batch * share + batch.roll(1, 0) * (1 - share), target * share + target.roll(1, 0) * (1 - share)


def make_loaders(*, batch_size, workers):
    mixup = RandomMixup(num_classes=4, alpha=0.2)

    def collate_fn(batch):
        return mixup(*default_collate(batch))

    dataset, dataset_test = Blobs(480), Blobs(120)
    sampler = RepeatedSampler(dataset, repetitions=3)
    train = DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=workers, collate_fn=collate_fn)
    test = DataLoader(dataset_test, batch_size=batch_size, num_workers=workers)
    return train, sampler, test


def main():
    torch.manual_seed(0)
    train, sampler, test = make_loaders(batch_size=24, workers=2)
    model = nn.Linear(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        rows = 0
        for image, target in train:
            loss = criterion(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows += len(image)
        print(f"epoch {epoch}: {rows} rows, loss {loss.item():.3f}")
        assert rows == 480
    with torch.inference_mode():
        right = sum((model(image).argmax(1) == target).sum().item() for image, target in test)
    assert right > 90, right
    print("OK")


if __name__ == "__main__":
    main()
