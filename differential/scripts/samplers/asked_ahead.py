"""How far a sampler is asked ahead of the batches, which programs rely on that change it on the way."""

# methods: fork spawn
import sys
from torch.utils.data import DataLoader, Sampler


class Curriculum(Sampler):
    def __init__(self):
        self.limit, self.asked = 3, 0

    def __len__(self):
        return 20

    def __iter__(self):
        for k in range(20):
            self.asked += 1
            yield k % self.limit


if __name__ == "__main__":
    for workers, prefetch in ((1, 2), (2, 2), (2, 1), (1, 5)):
        sampler = Curriculum()
        loader = DataLoader(
            range(20),
            batch_size=2,
            sampler=sampler,
            num_workers=workers,
            prefetch_factor=prefetch,
            multiprocessing_context=sys.argv[1],
        )
        for number, batch in enumerate(loader):
            print(batch.tolist(), sampler.asked)
            if number == 2:
                sampler.limit = 10
