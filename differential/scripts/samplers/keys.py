"""A dataset with keys of other types than int."""

# methods: fork
import torch
from torch.utils.data import DataLoader

table = {"a": 1, "b": 2, ("c", 3): 3, 4.5: 4}
print([batch.tolist() for batch in DataLoader(table, sampler=list(table), batch_size=2, num_workers=2)])


class Grid:
    def __getitem__(self, key):
        row, column = key
        return torch.tensor([row, column])


print(list(DataLoader(Grid(), sampler=[(i, j) for i in range(2) for j in range(2)], batch_size=3, num_workers=1)))
print(list(DataLoader(torch.arange(5) * 2, sampler=torch.tensor([3, 1]), num_workers=1)))
