"""BatchSampler, lists of batches and generators of batches."""

# methods: fork
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler


class Halves:
    def __iter__(self):
        yield [0, 2, 4]
        yield [1, 3]


torch.manual_seed(4)
samplers = [
    BatchSampler(RandomSampler(range(7)), 3, drop_last=False),
    BatchSampler(SequentialSampler(range(7)), 3, drop_last=True),
    [[0], [1, 2], [3, 4, 5]],
    Halves(),
    ([1, 2], (3,)),
]
for sampler in samplers:
    loader = DataLoader(range(7), batch_sampler=sampler, num_workers=2)
    print(loader.batch_size, loader.drop_last, [batch.tolist() for batch in loader])
