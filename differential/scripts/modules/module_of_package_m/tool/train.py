import logging
import sys
from importlib import resources
from torch.utils.data import DataLoader, Dataset

from . import SCALE

log = logging.getLogger(__spec__.name)
NAMES = resources.files(__spec__.parent).joinpath("names.txt").read_text().strip().split(",")
HEAD = __loader__.get_data(__file__)[:14]


class Named(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return i * SCALE, NAMES[i], log.name, HEAD, __spec__.name, __spec__.origin == __file__, __package__


if __name__ == "__main__":
    print(*DataLoader(Named(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]))
