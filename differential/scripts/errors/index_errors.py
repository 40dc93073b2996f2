"""Indices out of range, of other types, and a length that lies."""

# methods: fork
from torch.utils.data import DataLoader


class Short:
    def __init__(self, length):
        self.items, self.length = list(range(5)), length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return self.items[i]


for length, sampler in (
    (5, None),
    (8, None),
    (3, None),
    (5, [-1, 0]),
    (5, [7]),
    (5, ["a"]),
    (5, [True, False]),
    (5, [1.0]),
):
    try:
        print([batch.item() for batch in DataLoader(Short(length), num_workers=1, sampler=sampler)])
    except Exception as error:
        print(type(error).__name__, [line for line in str(error).splitlines() if "Error" in line][-1])
