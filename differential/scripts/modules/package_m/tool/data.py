from torch.utils.data import Dataset

from . import NAME


class Named(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return i, NAME, __name__


def collate(samples):
    return [sample[0] for sample in samples], samples[0][1:], __package__
