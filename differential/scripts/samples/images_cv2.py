"""Pictures by OpenCV."""

# needs: cv2
import sys
import cv2
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        image = cv2.imread(f"{i}.png")
        image = cv2.cvtColor(cv2.resize(image, (4, 4)), cv2.COLOR_BGR2RGB)
        return image, cv2.imencode(".png", image)[1].size > 0


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    for i in range(6):
        cv2.imwrite(f"{i}.png", rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
    for images, ok in DataLoader(Pictures(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(images.dtype, images.shape, images.sum(dim=(1, 2, 3)).tolist(), ok)
