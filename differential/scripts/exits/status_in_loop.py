"""sys.exit(5) in the middle of the loop."""
# cold: needs an interpreter of its own

import sys
from torch.utils.data import DataLoader

if __name__ == "__main__":
    for number, batch in enumerate(
        DataLoader(range(20), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    ):
        print(batch)
        if number == 2:
            sys.exit(5)
