import sys
from torch.utils.data import DataLoader

from .data import Named, collate

# Functions of this module are out of the question: multiprocessing does not import a __main__ of a package in a child.
if __name__ == "__main__":
    for batch in DataLoader(
        Named(), batch_size=3, num_workers=2, collate_fn=collate, multiprocessing_context=sys.argv[1]
    ):
        print(batch, __package__, sys.argv[0].endswith("__main__.py"))
