"""The datasets, each as small as it can be, so that the loader and not the dataset is timed.

All but the streams are map-style and say nothing of loaders. Whatever is drawn here is drawn from a fixed seed, except
by `Photos`, which uses Python's `random` as people do: every worker of torch has its own, seeded by torch.
"""

from __future__ import annotations

import io
import itertools
import random
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

# More than any engine can take within a reading; nothing is allocated for them.
ENDLESS = 10**8


class Source(Dataset[Any]):
    """What a workload reads."""

    collate: Callable[[list[Any]], Any] | None = None
    """None: torch's default."""

    def __len__(self) -> int:
        return ENDLESS

    def make_again(self, indices: Sequence[int], batch: Sequence[torch.Tensor]) -> Any:
        """What `batch`, a list of its tensors, must be if it was loaded rightly."""
        samples = [self[index] for index in indices]
        return (self.collate or default_collate)(samples)


def random_bytes(count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, count, dtype=np.uint8))


class FloatImages(Source):
    """3 by 224 by 224 float32; 256 different ones (154 MB), over and over."""

    def __init__(self) -> None:
        self.images = torch.rand(256, 3, 224, 224, generator=torch.Generator().manual_seed(1))

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.images[index % len(self.images)]


class ByteImages(Source):
    """3 by 224 by 224 bytes; 768 different ones (116 MB), over and over."""

    def __init__(self) -> None:
        self.images = random_bytes(768 * 3 * 224 * 224).view(768, 3, 224, 224)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.images[index % len(self.images)]


class Thumbnails(Source):
    """3 by 64 by 64 float32; 512 different ones (25 MB), over and over."""

    def __init__(self) -> None:
        self.images = torch.rand(512, 3, 64, 64, generator=torch.Generator().manual_seed(1))

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.images[index % len(self.images)]


class Integers(Source):
    """The least that a sample can be."""

    def __getitem__(self, index: int) -> int:
        return index


class SmallTensors(Source):
    """Ten tensors of 32 floats in a dict; 1,024 different samples, over and over."""

    def __init__(self) -> None:
        self.rows = torch.rand(1024, 10, 32, generator=torch.Generator().manual_seed(1))
        self.names = tuple(f"feature_{number}" for number in range(10))

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, self.rows[index % len(self.rows)], strict=True))


class Photos(Source):
    """JPEGs of 320 by 240 in memory, decoded, cropped to 224 by 224 and flipped at random.

    A sample carries its crop (left, top, flipped), as detection pipelines do. So its pixels can be checked whatever the
    random numbers were.
    """

    size = (320, 240)
    side = 224

    def __init__(self) -> None:
        from PIL import Image

        numbers = np.random.default_rng(1)
        # Soft shapes with a little grain: as many bytes, and as long to decode, as a photo of that size.
        coarse = numbers.integers(0, 256, (64, 12, 16, 3), dtype=np.uint8)
        self.files = [self._encoded(Image.fromarray(each), numbers) for each in coarse]

    def _encoded(self, coarse: Any, numbers: np.random.Generator) -> bytes:
        from PIL import Image

        soft = np.asarray(coarse.resize(self.size, Image.Resampling.BICUBIC), dtype=np.int16)
        grainy = np.clip(soft + numbers.integers(-6, 7, soft.shape), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(grainy).save(file, "JPEG", quality=90)
        return file.getvalue()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, tuple[int, int, int]]:
        width, height = self.size
        crop = random.randrange(width - self.side), random.randrange(height - self.side), random.randrange(2)
        return self.pixels(index, crop), index % 1000, crop

    def pixels(self, index: int, crop: Sequence[int]) -> torch.Tensor:
        from PIL import Image

        left, top, is_flipped = crop
        image = Image.open(io.BytesIO(self.files[index % len(self.files)]))
        image = image.crop((left, top, left + self.side, top + self.side))
        if is_flipped:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()

    def make_again(self, indices: Sequence[int], batch: Sequence[torch.Tensor]) -> Any:
        crops = torch.stack(list(batch[2:]), 1).tolist()
        samples = [
            (self.pixels(index, crop), index % 1000, tuple(crop)) for index, crop in zip(indices, crops, strict=True)
        ]
        return default_collate(samples)


class Sentences(Source):
    """Token ids, 8 to 512 of them; a batch is padded to its longest, so every batch has another size."""

    def __init__(self) -> None:
        numbers = np.random.default_rng(1)
        # Most sentences are short, some are long.
        lengths = np.clip(numbers.lognormal(4.0, 0.8, 8192), 8, 512).astype(np.int64)
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        self.tokens = torch.from_numpy(numbers.integers(1, 50_000, int(self.ends[-1])))

    def __getitem__(self, index: int) -> torch.Tensor:
        place = index % len(self.starts)
        return self.tokens[self.starts[place] : self.ends[place]]

    @staticmethod
    def collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        lengths = torch.tensor([len(sample) for sample in samples])
        return {"tokens": pad_sequence(samples, batch_first=True), "lengths": lengths}


class Skewed(Source):
    """A fixed amount of computing, ten times as much for one sample in ten, which ones being as good as random.

    It computes rather than sleeps because waiting costs no core: `Waiting` is the workload for that. And it does a
    fixed amount of work, not work until a time is over, so that a worker that is kept from its core is seen to be late.
    """

    rounds = 10  # about 0.2 ms

    def __init__(self) -> None:
        self.bytes = bytes(64 * 1024)

    def __getitem__(self, index: int) -> int:
        value = zlib.crc32(index.to_bytes(8, "little"))
        for _ in range(self.rounds * (10 if value % 10 == 0 else 1)):
            value = zlib.crc32(self.bytes, value)
        return value


class Waiting(Source):
    """A millisecond of waiting, then 4 KB; 1,024 different samples, over and over."""

    def __init__(self) -> None:
        self.rows = torch.rand(1024, 1024, generator=torch.Generator().manual_seed(1))

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.001)
        return self.rows[index % len(self.rows)]


class Paths(Source):
    """A million path strings in a list, as image folders have them; the files do not exist and are not read."""

    def __init__(self) -> None:
        self.paths = [f"/data/train/{number % 1000:03}/{number:07}.jpg" for number in range(1_000_000)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        # Depends on the path alone: Python's own `hash` differs from process to process.
        return int.from_bytes(self.paths[index].encode()[-11:-4], "big")


class Texts(Source):
    """Two million texts in a list, read all over the place, as a shuffled epoch does: a worker comes to every page."""

    count = 2_000_000
    step = 1_234_577  # has no divisor in common with the count, so that every text has its turn

    def __init__(self) -> None:
        self.texts: Sequence[str] = list(self.written())

    def written(self) -> Iterator[str]:
        return (
            f"image_{number:012}.jpg: a caption of a hundred characters, number {number:041}"
            for number in range(self.count)
        )

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return zlib.crc32(self.texts[index * self.step % self.count].encode())


class PackedTexts(Texts):
    """The same texts, packed."""

    def __init__(self) -> None:
        from antifreeze import packed

        self.texts = packed(self.written())


class Annotations(Source):
    """860,000 dicts of the kind that a COCO file has: numbers and a list in each."""

    def __init__(self) -> None:
        self.annotations = [
            {
                "id": number,
                "image_id": number // 7,
                "category_id": number % 80,
                "bbox": [number % 640 + 0.5, number % 480 + 0.5, number % 200 + 0.25, number % 100 + 0.25],
                "area": number % 20_000 + 0.5,
                "iscrowd": 0,
            }
            for number in range(860_000)
        ]

    def __len__(self) -> int:
        return len(self.annotations)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        annotation = self.annotations[index]
        return torch.tensor(annotation["bbox"]), int(annotation["category_id"])


class Rows(Source):
    """One numpy array of 1 GiB, all of it in memory; a sample is a row of 4 KiB."""

    def __init__(self) -> None:
        self.array = np.empty((1 << 18, 1 << 10), dtype=np.float32)
        self.array[:] = np.arange(1 << 10, dtype=np.float32)
        self.array[:, 0] = np.arange(1 << 18)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.array[index])


class Stream(IterableDataset[Any]):
    """A source that is read from front to back, in blocks, which workers share out as they would files.

    A block is as long as a batch, so that the batches are those of the source itself, in its order.
    """

    collate = None
    block: int
    make_items: Callable[[], Source]

    def __init__(self) -> None:
        self.items = self.make_items()

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        for number in itertools.count(first, step):
            for index in range(number * self.block, (number + 1) * self.block):
                yield self.items[index]

    def make_again(self, indices: Sequence[int], batch: Sequence[torch.Tensor]) -> Any:
        return self.items.make_again(indices, batch)


class IntegerStream(Stream):
    block = 64
    make_items = Integers


class SmallTensorStream(Stream):
    block = 32
    make_items = SmallTensors
