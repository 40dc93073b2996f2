"""Claim: `gc.freeze()` before the loader cures the growth of workers that only read a big list."""

import gc
import re
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

from trying import outcome


class Names(Dataset[int]):
    def __init__(self) -> None:
        self.items = [f"name-{number}" for number in range(400_000)]

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        """Reads a part of the list; says how many kB of this process are its own."""
        for name in self.items[1000 * index : 1000 * (index + 1)]:
            assert name
        found = re.search(r"Private_Dirty: +(\d+)", Path("/proc/self/smaps_rollup").read_text())
        assert found is not None
        return int(found[1])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        dataset = Names()
        if sys.argv[1] == "frozen":
            gc.collect()
            gc.freeze()
        own = [int(batch[0]) for batch in DataLoader(dataset, batch_size=1, num_workers=1)]
        print(f"a worker's own memory grows by {(own[-1] - own[0]) / 1024:.0f} MB while it only reads")
    else:
        print("as it is:", outcome(__file__, "plain"))
        print("with gc.freeze():", outcome(__file__, "frozen"))
