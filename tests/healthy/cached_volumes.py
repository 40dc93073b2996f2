"""Volumes cached after their fixed transforms; random ones hold a generator that every worker seeds anew: as MONAI does.

https://github.com/Project-MONAI/tutorials/blob/main/3d_segmentation/torch/unet_training_dict.py
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Randomizable:
    R = np.random.RandomState()

    def set_random_state(self, seed):
        self.R = np.random.RandomState(seed)
        return self


class MakeVolume:
    def __call__(self, sample):
        draw = np.random.RandomState(sample["number"])
        mask = np.zeros((16, 16, 16), dtype=np.float32)
        x, y, z = draw.randint(2, 10, 3)
        mask[x : x + 4, y : y + 4, z : z + 4] = 1
        return {**sample, "image": mask + 0.2 * draw.randn(16, 16, 16).astype(np.float32), "label": mask}


class ScaleIntensityd:
    def __init__(self, keys):
        self.keys = keys

    def __call__(self, sample):
        scaled = {key: (sample[key] - sample[key].min()) / np.ptp(sample[key]) for key in self.keys}
        return {**sample, **scaled}


class RandCropd(Randomizable):
    def __init__(self, keys, size):
        self.keys, self.size = keys, size

    def __call__(self, sample):
        corner = self.R.randint(0, 16 - self.size + 1, 3)
        window = tuple(slice(begin, begin + self.size) for begin in corner)
        return {**sample, **{key: np.ascontiguousarray(sample[key][window]) for key in self.keys}, "corner": corner}


class CacheDataset(Dataset):
    def __init__(self, items, transforms):
        fixed = [transform for transform in transforms if not isinstance(transform, Randomizable)]
        self.random = [transform for transform in transforms if isinstance(transform, Randomizable)]
        self._cache = []
        for item in items:
            for transform in fixed:
                item = transform(item)  # noqa: PLW2901
            self._cache.append(item)

    def __len__(self):
        return len(self._cache)

    def __getitem__(self, index):
        item = self._cache[index]
        for transform in self.random:
            item = transform(item)
        return item


def worker_init_fn(worker_id):
    worker = get_worker_info()
    for transform in worker.dataset.random:
        transform.set_random_state(seed=worker.seed % 2**32)


def main():
    torch.manual_seed(0)
    items = [{"number": number} for number in range(32)]
    dataset = CacheDataset(items, [MakeVolume(), ScaleIntensityd(["image"]), RandCropd(["image", "label"], 12)])
    loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, worker_init_fn=worker_init_fn)
    model = nn.Conv3d(1, 1, 3, padding=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    corners, losses = set(), []
    for epoch in range(3):
        numbers, losses = [], []
        for batch in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(
                model(batch["image"][:, None]), batch["label"][:, None]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            numbers += batch["number"].tolist()
            crops = torch.cat([batch["number"][:, None], batch["corner"]], dim=1)
            corners |= {tuple(row) for row in crops.tolist()}
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
        assert sorted(numbers) == list(range(32))
    assert len(corners) > 80, f"only {len(corners)} different crops"
    assert losses[-1] < 0.4
    print("OK")


if __name__ == "__main__":
    main()
