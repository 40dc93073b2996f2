from torch.utils.data import Dataset

from . import NAME


class Named(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return i, NAME, __name__
