"""An error of the training step is not caught."""
# cold: needs an interpreter of its own

# methods: fork spawn
import sys
from torch.utils.data import DataLoader

if __name__ == "__main__":
    for batch in DataLoader(range(20), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch, flush=True)
        raise ValueError("a bad step")
