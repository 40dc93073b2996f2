"""Limits and priority that the trainer sets are those of workers."""

import os
import resource
import sys
from torch.utils.data import DataLoader, Dataset


class Limits(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        return (
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            resource.getrlimit(resource.RLIMIT_CORE)[0],
            os.nice(0),
            len(os.sched_getaffinity(0)),
        )


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    mine = os.nice(0)
    print(
        *[
            (files, core, nice - mine, processors)
            for files, core, nice, processors in DataLoader(
                Limits(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]
            )
        ]
    )
