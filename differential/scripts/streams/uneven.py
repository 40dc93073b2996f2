"""Workers with streams of different lengths, also of none."""

import sys
import warnings
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Uneven(IterableDataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return sum(self.lengths)

    def __iter__(self):
        number = get_worker_info().id
        return iter(range(number * 100, number * 100 + self.lengths[number]))


if __name__ == "__main__":
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "This process .* is multi-threaded")  # of Python 3.12
        for lengths in ((1, 7), (6, 0), (0, 0), (5, 4)):
            for drop in (False, True):
                loader = DataLoader(
                    Uneven(lengths), batch_size=2, drop_last=drop, num_workers=2, multiprocessing_context=sys.argv[1]
                )
                print(lengths, drop, len(loader), [batch.tolist() for batch in loader])
        print([str(each.message).split(" at 0x")[0] for each in caught])
