"""num_workers is changed between epochs, and 0 is one of the numbers."""

# methods: fork
import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return i, torch.rand(1).item()


torch.manual_seed(0)
loader = DataLoader(Noise(), batch_size=2, shuffle=True, num_workers=1)
for number in (1, 3, 0, 2):
    loader.num_workers = number
    print(number, *loader, sep="\n")
