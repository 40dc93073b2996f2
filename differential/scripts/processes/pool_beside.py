"""A multiprocessing.Pool and a ProcessPoolExecutor in the same program."""

import concurrent.futures
import multiprocessing
import sys
from torch.utils.data import DataLoader


def square(i):
    return i * i


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(pool.map(square, range(4)))
        print(
            [
                batch.tolist()
                for batch in DataLoader(range(6), batch_size=2, num_workers=2, multiprocessing_context=context)
            ]
        )
        print(pool.map(square, range(4)))
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        it = iter(DataLoader(range(6), batch_size=2, num_workers=1, multiprocessing_context=context))
        print(next(it), executor.submit(square, 9).result(), list(it))
