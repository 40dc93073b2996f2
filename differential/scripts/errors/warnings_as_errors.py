"""All warnings are errors, as test suites have it."""
# cold: needs an interpreter of its own

import sys
import warnings

warnings.simplefilter("error")
from torch.utils.data import DataLoader, IterableDataset


class Liar(IterableDataset):
    def __len__(self):
        return 2

    def __iter__(self):
        return iter(range(5))


if __name__ == "__main__":
    print(
        [
            batch.tolist()
            for batch in DataLoader(range(6), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
        ]
    )
    try:
        print(
            [
                batch.tolist()
                for batch in DataLoader(Liar(), batch_size=1, num_workers=1, multiprocessing_context=sys.argv[1])
            ]
        )
    except UserWarning as error:
        print("UserWarning", str(error)[:60])
    try:
        print(len(list(DataLoader(range(3), pin_memory=True, num_workers=1, multiprocessing_context=sys.argv[1]))))
    except UserWarning as error:
        print("UserWarning", str(error)[:60])
    try:
        DataLoader(range(3), num_workers=1000)
    except UserWarning as error:
        print("UserWarning", str(error)[:40])
