"""os._exit(7) in the middle of the loop."""

# methods: fork
import os
from torch.utils.data import DataLoader

it = iter(DataLoader(range(20), batch_size=2, num_workers=2))
print(next(it), flush=True)
os._exit(7)
