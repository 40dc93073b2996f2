import sys
from torch.utils.data import DataLoader

from .data import Named


def collate(samples):
    return [sample[0] for sample in samples], samples[0][1:], __package__


if __name__ == "__main__":
    for batch in DataLoader(
        Named(), batch_size=3, num_workers=2, collate_fn=collate, multiprocessing_context=sys.argv[1]
    ):
        print(batch, __package__, sys.argv[0].endswith("__main__.py"))
