"""Descriptors and threads after loops: as many as before."""

import gc
import os
import sys
import threading
from torch.utils.data import DataLoader

if __name__ == "__main__":

    def count():
        gc.collect()
        return threading.active_count()

    before = None
    for epoch in range(3):
        print(
            [
                batch.tolist()
                for batch in DataLoader(range(6), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
            ]
        )
        before = before or count()
        print(count() - before <= 2)  # threads of torch may take a moment to end
