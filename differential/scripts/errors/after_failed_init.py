"""What a user who goes on after a failed worker_init_fn gets."""

# methods: fork
from torch.utils.data import DataLoader


def begin(number):
    raise ConnectionError("no connection")


it = iter(DataLoader(range(4), num_workers=1, worker_init_fn=begin))
for _ in range(3):
    try:
        print(next(it))
    except Exception as error:
        print(type(error).__name__)
