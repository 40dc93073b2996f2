"""sys.exit(3) when the loop is over."""

import sys
from torch.utils.data import DataLoader

if __name__ == "__main__":
    for batch in DataLoader(range(8), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
    sys.exit(3)
