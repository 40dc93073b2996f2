"""Lambdas, closures and local classes, forked."""

# methods: fork
from torch.utils.data import DataLoader, Dataset


def make(scale):
    class Local(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return i * scale

    return Local()


offset = 5
print(
    list(
        DataLoader(
            make(3),
            batch_size=2,
            num_workers=2,
            collate_fn=lambda samples: [each + offset for each in samples],
            worker_init_fn=lambda number: None,
        )
    )
)
offset = 6
print(
    list(
        DataLoader(make(3), batch_size=2, num_workers=2, collate_fn=lambda samples: [each + offset for each in samples])
    )
)
