"""in_order=False: all batches come, in some order."""

# methods: fork spawn
import sys
from torch.utils.data import DataLoader

if __name__ == "__main__":
    loader = DataLoader(range(20), batch_size=3, num_workers=2, in_order=False, multiprocessing_context=sys.argv[1])
    for epoch in range(2):
        print(sorted(batch.tolist() for batch in loader), len(loader))
