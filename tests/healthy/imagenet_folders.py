"""JPEGs in a folder per class, augmented in the workers, meters and a validation pass: in the style of PyTorch's ImageNet.

https://github.com/pytorch/examples/blob/main/imagenet/main.py
"""

import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

IS_DISTRIBUTED = False


class ImageFolder(Dataset):
    def __init__(self, root, transform):
        self.classes = sorted(path.name for path in Path(root).iterdir())
        self.samples = [
            (str(path), number)
            for number, name in enumerate(self.classes)
            for path in sorted(Path(root, name).iterdir())
        ]
        self.transform = transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, target = self.samples[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        return self.transform(image), target


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        left, top = (random.randint(0, length - self.size) for length in image.size)
        return image.crop((left, top, left + self.size, top + self.size))


class CenterCrop(RandomCrop):
    def __call__(self, image):
        left, top = ((length - self.size) // 2 for length in image.size)
        return image.crop((left, top, left + self.size, top + self.size))


def flip_sometimes(image):
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if torch.rand(1) < 0.5 else image


def to_tensor(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def __str__(self):
        return f"{self.name} {self.sum / max(1, self.count):.3f}"


def write_images(root):
    for number, name in enumerate(("dark", "light")):
        Path(root, name).mkdir(parents=True)
        for index in range(60):
            pixels = np.random.default_rng(index).integers(
                100 * number, 100 * number + 120, (40, 40, 3), dtype=np.uint8
            )
            Image.fromarray(pixels).save(Path(root, name, f"{index}.jpg"))


def train(loader, model, criterion, optimizer, epoch):
    batch_time, losses = AverageMeter("time"), AverageMeter("loss")
    model.train()
    end = time.time()
    for images, targets in loader:
        loss = criterion(model(images), targets)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
    print(f"epoch {epoch}", batch_time, losses, losses.count, "images")
    return losses


def validate(loader, model):
    top1 = AverageMeter("acc@1")
    model.eval()
    with torch.no_grad():
        for images, targets in loader:
            top1.update((model(images).argmax(1) == targets).float().mean().item(), images.size(0))
    print(top1)
    return top1.sum / top1.count


def main():
    random.seed(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        write_images(Path(root, "train"))
        write_images(Path(root, "val"))
        train_set = ImageFolder(Path(root, "train"), Compose([RandomCrop(32), flip_sometimes, to_tensor]))
        val_set = ImageFolder(Path(root, "val"), Compose([CenterCrop(32), to_tensor]))
        sampler = DistributedSampler(train_set) if IS_DISTRIBUTED else None
        train_loader = DataLoader(
            train_set, batch_size=16, shuffle=sampler is None, num_workers=2, pin_memory=False, sampler=sampler
        )
        val_loader = DataLoader(val_set, batch_size=16, shuffle=False, num_workers=2, pin_memory=False)

        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
        )
        criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.05)
        best = 0.0
        for epoch in range(3):
            if IS_DISTRIBUTED:
                sampler.set_epoch(epoch)
            assert train(train_loader, model, criterion, optimizer, epoch).count == 120
            best = max(best, validate(val_loader, model))
        assert best > 0.9, best
    print("OK")


if __name__ == "__main__":
    main()
