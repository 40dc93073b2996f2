"""torch.set_default_dtype in the main guard: seen by forked workers, not by spawned ones."""

# methods: fork spawn forkserver
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return torch.rand(2), torch.tensor([0.1]), torch.arange(3.0)


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    for batch in DataLoader(Numbers(), num_workers=1, batch_size=2, multiprocessing_context=sys.argv[1]):
        print(batch)
    print(next(iter(DataLoader([0.5, 1.5], batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1]))).dtype)
