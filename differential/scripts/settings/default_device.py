"""torch.set_default_device: another one than the CPU, in the trainer only."""

# methods: fork spawn
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.tensor([i], device="cpu"), i, float(i)


if __name__ == "__main__":
    method = sys.argv[1]
    with torch.device("meta"):
        for options in (dict(batch_size=2), dict(batch_size=None)):
            try:
                for batch in DataLoader(Numbers(), num_workers=1, multiprocessing_context=method, **options):
                    print(batch)
            except Exception as error:
                print(type(error).__name__)
