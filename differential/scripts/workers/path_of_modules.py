"""sys.path is changed by the script, and workers import from there."""

import os
import sys
from pathlib import Path
from torch.utils.data import DataLoader, Dataset


class Importing(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        import plugin

        return plugin.value(i), sys.path[0] == os.environ["PLUGINS"]


if __name__ == "__main__":
    Path("plugins").mkdir()
    Path("plugins/plugin.py").write_text("def value(i):\n    return i * 100\n")
    os.environ["PLUGINS"] = os.path.abspath("plugins")
    sys.path.insert(0, os.environ["PLUGINS"])
    print(*DataLoader(Importing(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1]))
