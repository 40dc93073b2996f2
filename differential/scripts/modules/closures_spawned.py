"""Lambdas and local classes, spawned: errors on torch."""

# methods: spawn
import sys
from torch.utils.data import DataLoader

if __name__ == "__main__":
    try:
        print(
            list(
                DataLoader(
                    range(4),
                    batch_size=2,
                    num_workers=1,
                    collate_fn=lambda samples: samples,
                    multiprocessing_context=sys.argv[1],
                )
            )
        )
    except Exception as error:
        print("not possible")
