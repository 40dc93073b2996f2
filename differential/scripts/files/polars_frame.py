"""A data frame of polars."""

# needs: polars
# methods: spawn
import sys
import polars
from torch.utils.data import DataLoader, Dataset


class Frame(Dataset):
    def __init__(self):
        self.frame = polars.DataFrame({"a": list(range(6)), "b": [f"s{i}" for i in range(6)]})

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, i):
        return self.frame.row(i, named=True)


if __name__ == "__main__":
    for batch in DataLoader(Frame(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
