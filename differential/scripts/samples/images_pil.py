"""Pictures by Pillow, opened in workers."""

# needs: PIL
import sys
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as image:
            return torch.from_numpy(np.array(image.resize((4, 4)).convert("RGB"))).permute(2, 0, 1), self.paths[i]


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    for i in range(6):
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(f"{i}.png")
    for images, paths in DataLoader(
        Pictures([f"{i}.png" for i in range(6)]), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]
    ):
        print(images.shape, images.stride(), images.sum(dim=(1, 2, 3)).tolist(), paths)
    opened = [Image.open("0.png"), Image.open("1.png")]
    for image in DataLoader(opened, batch_size=None, num_workers=1):
        print(image.size, image.getpixel((0, 0)))
