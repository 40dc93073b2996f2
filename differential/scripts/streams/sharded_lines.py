"""Lines of several files, each file read by one worker."""

import sys
from pathlib import Path
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        info = get_worker_info()
        for path in self.paths if info is None else self.paths[info.id :: info.num_workers]:
            with open(path) as file:
                for line in file:
                    yield line.strip()


if __name__ == "__main__":
    for k in range(4):
        Path(f"{k}.txt").write_text("".join(f"file {k} line {i}\n" for i in range(k + 2)))
    for epoch in range(2):
        print(
            *DataLoader(
                Lines([f"{k}.txt" for k in range(4)]), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1]
            ),
            sep="\n",
        )
