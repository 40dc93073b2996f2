from torch.utils.data import Dataset


class Late(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        import heavy

        return heavy.compute(i), heavy.__name__
