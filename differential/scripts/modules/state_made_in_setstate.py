"""What __setstate__ opens: generators, pools, threads, files. Each spawned worker has its own."""

# methods: spawn forkserver
import concurrent.futures
import os
import queue
import random
import sys
import threading
import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Opening(Dataset):
    def __init__(self, kind):
        self.kind = kind
        self.open()

    def __getstate__(self):
        return {"kind": self.kind}

    def __setstate__(self, state):
        self.kind = state["kind"]
        self.open()

    def open(self):
        self.pid = os.getpid()
        if self.kind == "entropy":
            self.rng = np.random.default_rng()
        elif self.kind == "pid":
            self.rng = random.Random(os.getpid())
        elif self.kind == "pool":
            self.pool = concurrent.futures.ThreadPoolExecutor(1)
            self.pool.submit(int).result()
        elif self.kind == "thread":
            self.questions, self.answers = queue.Queue(), queue.Queue()
            threading.Thread(target=self.serve, daemon=True).start()
        elif self.kind == "file":
            self.file = open(__file__, "rb", buffering=0)

    def serve(self):
        while True:
            self.answers.put(self.questions.get() * 2)

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if self.kind in ("entropy", "pid"):
            value = self.rng.random()
        elif self.kind == "pool":
            value = self.pool.submit(abs, -i).result(timeout=10)
        elif self.kind == "thread":
            self.questions.put(i)
            value = self.answers.get(timeout=10)
        else:
            value = self.file.read(4)
        return i, value, self.pid == os.getpid(), get_worker_info().id


if __name__ == "__main__":
    for kind in ("entropy", "pid", "pool", "thread", "file"):
        try:
            rows = list(DataLoader(Opening(kind), num_workers=2, batch_size=None, multiprocessing_context=sys.argv[1]))
        except Exception as error:
            print(kind, type(error).__name__)
            continue
        print(kind, "distinct", len({row[1] for row in rows}), {row[2] for row in rows}) if kind in (
            "entropy",
            "pid",
        ) else print(kind, rows)
