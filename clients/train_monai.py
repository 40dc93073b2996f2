"""MONAI: dictionaries of MetaTensors, random transforms; validation is buffered by a thread of its ThreadDataLoader."""

import numpy as np
import torch
from monai.data import DataLoader, Dataset, ThreadDataLoader
from monai.networks.nets import BasicUNet
from monai.transforms import Compose, EnsureChannelFirstd, EnsureTyped, RandFlipd, RandGaussianNoised, RandRotate90d
from monai.utils import set_determinism
from torch.nn.functional import binary_cross_entropy_with_logits


def scans(count: int, *, seed: int) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(seed)
    images = draw.normal(size=(count, 32, 32)).astype(np.float32)
    masks = np.zeros_like(images)
    masks[:, 4:12, 6:10] = 1
    return [{"image": image + mask, "mask": mask} for image, mask in zip(images, masks, strict=True)]


def main() -> None:
    set_determinism(7)
    both = ["image", "mask"]
    prepare = [EnsureChannelFirstd(both, channel_dim="no_channel"), EnsureTyped(both)]
    shake = [RandFlipd(both, prob=0.5, spatial_axis=1), RandRotate90d(both, prob=0.5), RandGaussianNoised("image")]
    train = DataLoader(Dataset(scans(32, seed=1), Compose(prepare + shake)), batch_size=4, shuffle=True, num_workers=2)
    valid = ThreadDataLoader(Dataset(scans(16, seed=2), Compose(prepare)), batch_size=4, num_workers=2, buffer_size=2)
    network = BasicUNet(2, 1, 1, features=(4, 4, 4, 4, 4, 4))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(2):
        network.train()
        for batch in train:
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(network(batch["image"]), batch["mask"])
            loss.backward()
            optimizer.step()
            print("loss train", loss.item().hex(), flush=True)
        network.eval()
        for batch in valid:
            with torch.no_grad():
                loss = binary_cross_entropy_with_logits(network(batch["image"]), batch["mask"])
            print("loss valid", loss.item().hex(), flush=True)


if __name__ == "__main__":
    main()
