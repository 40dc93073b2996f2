"""Two loaders and a random_split draw from one generator."""

# methods: fork
import torch
from torch.utils.data import DataLoader, random_split

g = torch.Generator().manual_seed(42)
train, valid = random_split(range(20), [0.7, 0.3], generator=g)
print(train.indices, valid.indices)
loaders = [DataLoader(part, batch_size=3, shuffle=True, num_workers=1, generator=g) for part in (train, valid)]
for epoch in range(2):
    for loader in loaders:
        print(epoch, [batch.tolist() for batch in loader], int(torch.randint(1000, (1,), generator=g)))
