"""The start method is set for the whole program, asked for, and given by a context."""
# cold: needs an interpreter of its own

# methods: fork spawn forkserver
import multiprocessing
import sys
import torch.multiprocessing
from torch.utils.data import DataLoader

if __name__ == "__main__":
    torch.multiprocessing.set_start_method(sys.argv[1])
    print(
        multiprocessing.get_start_method(),
        [batch.tolist() for batch in DataLoader(range(6), batch_size=2, num_workers=2)],
    )
    loader = DataLoader(
        range(6), batch_size=2, num_workers=1, multiprocessing_context=multiprocessing.get_context("fork")
    )
    print(loader.multiprocessing_context.get_start_method(), [batch.tolist() for batch in loader])
    try:
        multiprocessing.set_start_method("spawn")
    except RuntimeError as error:
        print(error)
