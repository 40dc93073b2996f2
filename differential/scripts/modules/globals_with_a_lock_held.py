"""Globals of many kinds that the main guard makes or changes; a lock that is held has workers start afresh."""
# cold: needs an interpreter of its own

# methods: fork
import functools
import logging
import threading

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

VOCABULARY = {}
TABLE = np.zeros(20_000)
MISSING = object()


class Scaler:
    def __init__(self):
        self.mean = 0.0

    def __call__(self, x):
        return x - self.mean


class Settings:
    _instance = None

    def __init__(self):
        self.size = 1

    @classmethod
    def instance(cls):
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance


class Compose:
    def __init__(self, functions):
        self.functions = functions

    def __call__(self, x):
        return functools.reduce(lambda x, function: function(x), self.functions, x)


scaler = Scaler()


def given(value=MISSING):
    return value is not MISSING


class Held(Dataset):
    def __init__(self):
        self.lock = threading.Lock()
        self.scaler = scaler

    def __len__(self):
        return 2

    def __getitem__(self, i):
        log.debug("sample %d", i)
        words = [VOCABULARY.get(f"word {i}", -1), TABLE[i + 1].item()]
        return (
            words,
            scaler(i),
            self.scaler(i),
            Settings.instance().size,
            transform(i),
            given(),
            given(i),
            tool.e > 2,
            add(i),
        )


if __name__ == "__main__":
    import math as tool

    log = logging.getLogger("train")
    transform = Compose([lambda x: x + 1, torch.tensor])

    def add(x):
        return x + TABLE[-1].item()

    VOCABULARY.update((f"word {i}", i) for i in range(15_000))
    TABLE[:] = np.arange(20_000)
    scaler.mean = 4.5
    Settings.instance().size = 7
    dataset = Held()
    dataset.lock.acquire()
    print(*DataLoader(dataset, num_workers=1, batch_size=None))
