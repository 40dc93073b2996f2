"""A worker runs programs."""

import subprocess
import sys
from torch.utils.data import DataLoader, Dataset


class Programs(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        echoed = subprocess.run(["echo", f"sample {i}"], capture_output=True, text=True, check=True).stdout.strip()
        failed = subprocess.run(["false"]).returncode
        return echoed, failed, subprocess.check_output("cat", input=b"%d" % i)


if __name__ == "__main__":
    for row in DataLoader(Programs(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1]):
        print(row)
