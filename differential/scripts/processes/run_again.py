"""The script runs itself as a second program."""
# cold: needs an interpreter of its own

import subprocess
import sys
from torch.utils.data import DataLoader

if __name__ == "__main__":
    print(
        sys.argv[2:],
        [
            batch.tolist()
            for batch in DataLoader(range(4), batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1])
        ],
        flush=True,
    )
    if len(sys.argv) == 2:
        print(subprocess.run([sys.executable, __file__, sys.argv[1], "again"]).returncode)
