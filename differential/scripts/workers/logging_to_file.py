"""The logging module: configured at import, each worker has a file of its own."""

import logging
import sys
from torch.utils.data import DataLoader, Dataset, get_worker_info

log = logging.getLogger("data")


class Logging(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        log.info("sample %d", i)
        log.debug("not wanted")
        return i


def begin(number):
    handler = logging.FileHandler(f"worker{number}.log")
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


if __name__ == "__main__":
    logging.basicConfig(filename="main.log", format="%(levelname)s %(message)s", level=logging.WARNING)
    logging.warning("begin")
    for batch in DataLoader(
        Logging(), batch_size=2, num_workers=2, worker_init_fn=begin, multiprocessing_context=sys.argv[1]
    ):
        logging.warning("batch %s", batch.tolist())
