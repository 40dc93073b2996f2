"""A fork server that has imported the program's modules before."""

# methods: forkserver
import multiprocessing
import sys
from torch.utils.data import DataLoader

if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["torch", "__main__"])
    for epoch in range(2):
        print(
            [
                batch.tolist()
                for batch in DataLoader(range(6), batch_size=2, num_workers=2, multiprocessing_context="forkserver")
            ]
        )
