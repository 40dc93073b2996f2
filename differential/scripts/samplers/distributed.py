"""DistributedSampler with ranks that are given, as in a test of a distributed program."""

# methods: fork spawn
import sys
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

if __name__ == "__main__":
    for rank in range(2):
        sampler = DistributedSampler(range(11), num_replicas=2, rank=rank, shuffle=True, seed=9)
        loader = DataLoader(
            range(11),
            batch_size=2,
            sampler=sampler,
            num_workers=1,
            multiprocessing_context=sys.argv[1],
            persistent_workers=True,
        )
        for epoch in range(2):
            sampler.set_epoch(epoch)
            print(rank, epoch, len(loader), [batch.tolist() for batch in loader])
