"""The loop runs in a thread that fills a queue, and two loops run in two threads."""

import queue
import sys
import threading
from torch.utils.data import DataLoader


def fill(loader, out):
    for batch in loader:
        out.put(batch.tolist())
    out.put(None)


if __name__ == "__main__":
    out = queue.Queue(maxsize=2)
    loader = DataLoader(range(10), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1])
    thread = threading.Thread(target=fill, args=(loader, out))
    thread.start()
    while (batch := out.get()) is not None:
        print(batch)
    thread.join()
    results = {}
    threads = [
        threading.Thread(
            target=lambda k=k: results.update(
                {
                    k: [
                        b.tolist()
                        for b in DataLoader(
                            range(k, k + 6), batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1]
                        )
                    ]
                }
            )
        )
        for k in (0, 100)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(sorted(results.items()))
