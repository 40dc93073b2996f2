"""Workers write a file for each sample, and a log for each worker."""

import sys
from pathlib import Path
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Writing(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        Path(f"sample{i}.txt").write_text(f"{i * i}\n")
        with open(f"worker{get_worker_info().id}.log", "a") as log:
            log.write(f"{i}\n")
        return i


if __name__ == "__main__":
    for batch in DataLoader(Writing(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(batch)
