"""webdataset: tar files, sharded over the workers, shuffled and augmented there; batches are made in the workers."""

import random
import tempfile

import numpy as np
import torch
import webdataset as wds
from torch.nn.functional import cross_entropy

from pictures import Pictures, small_network


def write_shards(folder: str, pictures: Pictures) -> list[str]:
    for shard in range(4):
        with wds.TarWriter(f"{folder}/{shard}.tar") as tar:
            for index in range(shard, len(pictures), 4):
                image, label = pictures[index]
                tar.write({"__key__": f"{index:04}", "image.npy": image.numpy(), "label.cls": int(label)})
    return [f"{folder}/{shard}.tar" for shard in range(4)]


def shake(image: np.ndarray) -> np.ndarray:
    if random.random() < 0.5:
        image = image[..., ::-1]
    noise = 0.05 * torch.randn(image.shape).numpy() + 0.05 * np.random.randn(*image.shape)
    return (image + noise).astype(np.float32)


def loader(shards: list[str], *, augment: bool) -> wds.WebLoader:
    samples = wds.WebDataset(shards, shardshuffle=4 if augment else False, detshuffle=True, seed=7)
    if augment:
        samples = samples.compose(wds.detshuffle(16, seed=7))
    samples = samples.decode().to_tuple("image.npy", "label.cls")
    if augment:
        samples = samples.map_tuple(shake, int)
    return wds.WebLoader(samples.batched(8), batch_size=None, num_workers=2)


def main() -> None:
    torch.manual_seed(7)
    with tempfile.TemporaryDirectory() as train_folder, tempfile.TemporaryDirectory() as valid_folder:
        train = loader(write_shards(train_folder, Pictures(70, seed=1, augment=False)), augment=True)
        valid = loader(write_shards(valid_folder, Pictures(32, seed=2, augment=False)), augment=False)
        network = small_network()
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        for _ in range(2):
            for images, labels in train:
                optimizer.zero_grad()
                loss = cross_entropy(network(torch.as_tensor(images)), torch.as_tensor(labels))
                loss.backward()
                optimizer.step()
                print("loss train", loss.item().hex(), flush=True)
            for images, labels in valid:
                with torch.no_grad():
                    loss = cross_entropy(network(torch.as_tensor(images)), torch.as_tensor(labels))
                print("loss valid", loss.item().hex(), flush=True)


if __name__ == "__main__":
    main()
