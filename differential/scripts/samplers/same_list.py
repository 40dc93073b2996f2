"""Batch samplers that use one list, or one array, for all batches, and take some time for each."""

# methods: fork spawn
import sys
import time

import numpy as np
from torch.utils.data import DataLoader


class Reusing:
    def __init__(self, batch):
        self.batch = batch

    def __len__(self):
        return 8

    def __iter__(self):
        for first in range(0, 16, 2):
            time.sleep(0.1)  # torch sends a batch in a thread, which has to be done with it before the list changes
            self.batch[:] = [first, first + 1]
            yield self.batch


if __name__ == "__main__":
    for batch in ([], np.zeros(2, dtype=int)):
        for kept in (False, True):
            loader = DataLoader(
                range(16),
                batch_sampler=Reusing(batch),
                num_workers=2,
                persistent_workers=kept,
                multiprocessing_context=sys.argv[1],
            )
            for _ in range(2):
                print([batch.tolist() for batch in loader])
