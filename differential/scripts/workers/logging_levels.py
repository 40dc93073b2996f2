"""The level that the main guard sets: seen by forked workers, not by spawned ones."""

# methods: fork spawn forkserver
import logging
import sys
from torch.utils.data import DataLoader, Dataset


class Levels(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        return (
            logging.getLogger().level,
            logging.getLogger("data").getEffectiveLevel(),
            len(logging.getLogger("data").handlers),
        )


if __name__ == "__main__":
    logging.getLogger("data").setLevel(logging.DEBUG)
    logging.getLogger("data").addHandler(logging.NullHandler())
    print(list(DataLoader(Levels(), batch_size=None, num_workers=1, multiprocessing_context=sys.argv[1])))
