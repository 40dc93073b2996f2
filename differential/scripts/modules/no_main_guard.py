"""A script without a main guard, forked."""
# cold: needs an interpreter of its own

# methods: fork
import torch
from torch.utils.data import DataLoader

print("at the top")
torch.manual_seed(0)
for batch in DataLoader(range(6), batch_size=2, shuffle=True, num_workers=2):
    print(batch)
