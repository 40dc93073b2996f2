"""Images of several sizes with any number of boxes, grouped by shape into batches: in the style of torchvision's detection.

https://github.com/pytorch/vision/blob/main/references/detection/train.py
"""

from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Scenes(Dataset):
    sizes = ((32, 48), (48, 32), (40, 40))

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def size_of(self, index):
        return self.sizes[index % 3]

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        height, width = self.size_of(index)
        image = torch.rand(3, height, width, generator=generator) / 4
        boxes = []
        for _ in range(index % 4):
            x, y = (int(torch.randint(0, limit - 10, (1,), generator=generator)) for limit in (width, height))
            image[:, y : y + 8, x : x + 8] = 1.0
            boxes.append([x, y, x + 8, y + 8])
        target = {"boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4), "image_id": index}
        return image, target


class GroupedBatchSampler(BatchSampler):
    """Batches of images that have one shape; what is left of each group comes last."""

    def __init__(self, sampler, group_of, batch_size):
        self.sampler, self.group_of, self.batch_size = sampler, group_of, batch_size

    def __iter__(self):
        waiting = defaultdict(list)
        for index in self.sampler:
            group = waiting[self.group_of(index)]
            group.append(index)
            if len(group) == self.batch_size:
                yield list(group)
                group.clear()
        yield from (group for group in waiting.values() if group)

    def __len__(self):
        return (len(self.sampler) + self.batch_size - 1) // self.batch_size


def collate_fn(batch):
    return tuple(zip(*batch, strict=True))


def main():
    torch.manual_seed(0)
    dataset = Scenes(120)
    batches = GroupedBatchSampler(RandomSampler(dataset), dataset.size_of, batch_size=4)
    loader = DataLoader(dataset, batch_sampler=batches, num_workers=2, collate_fn=collate_fn)
    model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    first = last = 0.0
    for epoch in range(4):
        seen, total = [], 0.0
        for images, targets in loader:
            counts = torch.tensor([[float(len(target["boxes"]))] for target in targets])
            loss = nn.functional.mse_loss(model(torch.stack(images)), counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            seen += [target["image_id"] for target in targets]
        assert sorted(seen) == list(range(120))
        first, last = first or total, total
        print(f"epoch {epoch}: loss {total:.2f}")
    assert last < first
    print("OK")


if __name__ == "__main__":
    main()
