"""Errors of the collate function, of default_collate for ragged samples, and of unknown types."""

import sys
import torch
from torch.utils.data import DataLoader


def fail(samples):
    raise RuntimeError(f"cannot collate {samples}")


if __name__ == "__main__":
    ragged = [torch.zeros(i) for i in range(4)]
    for data, collate in (
        (range(4), fail),
        (ragged, None),
        ([object(), object()], None),
        ([{"a": 1}, {"b": 1}], None),
        ([None, 1], None),
    ):
        try:
            print(
                list(
                    DataLoader(
                        data, batch_size=2, num_workers=1, collate_fn=collate, multiprocessing_context=sys.argv[1]
                    )
                )
            )
        except Exception as error:
            print(
                type(error).__name__,
                str(error).splitlines()[0],
                [line for line in str(error).splitlines() if "Error" in line][-1].split(" at 0x")[0],
            )
