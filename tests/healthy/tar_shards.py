"""Tar files, a chain of generators that share them out, shuffle, decode and batch: in the style of webdataset.

https://github.com/webdataset/webdataset/blob/main/examples/train-resnet50-wds.ipynb
"""

import io
import itertools
import json
import random
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

COUNT, SHARDS = 240, 6


def split_by_worker(urls):
    worker = get_worker_info()
    yield from urls if worker is None else itertools.islice(urls, worker.id, None, worker.num_workers)


def tar_file_samples(urls):
    for url in urls:
        with tarfile.open(url) as tar:
            files = iter(tar)
            for image, label in zip(files, files, strict=True):
                yield {"npy": tar.extractfile(image).read(), "json": tar.extractfile(label).read()}


def decode(samples):
    for sample in samples:
        label = json.loads(sample["json"])
        yield np.load(io.BytesIO(sample["npy"])), label["class"], label["index"]


def shuffled(size):
    def shuffle(samples):
        kept = []
        for sample in samples:
            kept.append(sample)
            if len(kept) >= size:
                yield kept.pop(random.randrange(len(kept)))
        random.shuffle(kept)
        yield from kept

    return shuffle


def batched(size):
    def batch(samples):
        while chunk := list(itertools.islice(samples, size)):
            yield tuple(torch.as_tensor(np.stack(column)) for column in zip(*chunk, strict=True))

    return batch


class DataPipeline(IterableDataset):
    def __init__(self, urls, *stages):
        self.urls, self.stages = urls, stages

    def __iter__(self):
        samples = iter(self.urls)
        for stage in self.stages:
            samples = stage(samples)
        return iter(samples)


def write_shards(folder):
    for shard in range(SHARDS):
        with tarfile.open(Path(folder, f"{shard:06}.tar"), "w") as tar:
            for index in range(shard, COUNT, SHARDS):
                image = io.BytesIO()
                np.save(image, np.random.default_rng(index).normal(index % 3, 0.5, 8).astype("float32"))
                for name, content in (
                    ("npy", image.getvalue()),
                    ("json", json.dumps({"class": index % 3, "index": index}).encode()),
                ):
                    member = tarfile.TarInfo(f"{index:05}.{name}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return sorted(str(path) for path in Path(folder).glob("*.tar"))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        urls = write_shards(folder)
        dataset = DataPipeline(urls, split_by_worker, tar_file_samples, shuffled(50), decode, batched(16))
        loader = DataLoader(dataset, batch_size=None, num_workers=2)
        model = nn.Linear(8, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        for epoch in range(3):
            indices, right = [], 0
            for images, labels, numbers in loader:
                logits = model(images)
                loss = nn.functional.cross_entropy(logits, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (logits.argmax(1) == labels).sum().item()
                indices += numbers.tolist()
            print(f"epoch {epoch}: {right} of {len(indices)} right")
            assert sorted(indices) == list(range(COUNT))
    assert right > 150, right
    print("OK")


if __name__ == "__main__":
    main()
