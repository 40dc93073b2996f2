"""The dataset's module imports others when the first sample is asked for."""

import sys
from late import Late
from torch.utils.data import DataLoader

if __name__ == "__main__":
    print("heavy" in sys.modules)
    print(*DataLoader(Late(), num_workers=2, batch_size=None, multiprocessing_context=sys.argv[1]))
    print("heavy" in sys.modules)
