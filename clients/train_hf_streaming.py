"""Hugging Face datasets, streaming: files divided among the workers, shuffled in a buffer, another order every epoch."""

import json
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from datasets import load_dataset
from pictures import Pictures, small_network


def write_files(folder: Path, pictures: Pictures) -> list[str]:
    for part in range(4):
        rows = [pictures[index] for index in range(part, len(pictures), 4)]
        lines = [json.dumps({"image": image.tolist(), "label": int(label)}) for image, label in rows]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    return sorted(str(file) for file in folder.glob("*.jsonl"))


def shake(row: dict) -> dict:
    image = torch.as_tensor(row["image"], dtype=torch.float32)
    if random.random() < 0.5:
        image = image.flip(-1)
    image = image.roll(int(np.random.randint(-1, 2)), -2) + 0.1 * torch.randn(image.shape)
    return {"image": image, "label": row["label"]}


def main() -> None:
    torch.manual_seed(7)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train").mkdir()
        Path(folder, "valid").mkdir()
        files = {
            "train": write_files(Path(folder, "train"), Pictures(70, seed=1, augment=False)),
            "valid": write_files(Path(folder, "valid"), Pictures(32, seed=2, augment=False)),
        }
        rows = load_dataset("json", data_files=files, streaming=True)
        train_rows = rows["train"].shuffle(seed=7, buffer_size=16).map(shake).with_format("torch")
        train = DataLoader(train_rows, batch_size=8, num_workers=2)
        valid = DataLoader(rows["valid"].with_format("torch"), batch_size=8, num_workers=2, persistent_workers=True)
        network = small_network()
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        for epoch in range(2):
            train_rows.set_epoch(epoch)
            for batch in train:
                optimizer.zero_grad()
                loss = cross_entropy(network(batch["image"]), batch["label"])
                loss.backward()
                optimizer.step()
                print("loss train", loss.item().hex(), flush=True)
            for batch in valid:
                with torch.no_grad():
                    loss = cross_entropy(network(batch["image"]), batch["label"])
                print("loss valid", loss.item().hex(), flush=True)


if __name__ == "__main__":
    main()
