"""Functions of modules and libraries that the program has replaced; a lock that is held has workers start afresh."""
# cold: needs an interpreter of its own

# methods: fork
import json
import sys
import textwrap
import threading

import torch
from torch.utils.data import DataLoader, Dataset


def scale(x):
    return x


class Model:
    def name(self):
        return "own"


class Held(Dataset):
    def __init__(self):
        self.lock = threading.Lock()
        self.model = Model()

    def __len__(self):
        return 2

    def __getitem__(self, i):
        relu = torch.nn.functional.relu(torch.tensor(-1.0)).item()
        return scale(i), self.model.name(), json.dumps(i), textwrap.fill("a"), relu, torch.Tensor.doubled(torch.ones(1))


def shown(text):
    return f"<{text}>"


if __name__ == "__main__":
    original = json.dumps
    json.dumps = lambda thing: "patched " + original(thing)
    textwrap.fill = shown
    torch.nn.functional.relu = lambda x: x
    torch.Tensor.doubled = lambda self: (self * 2).item()
    Model.name = lambda self: "patched"
    scale = (lambda factor: lambda x: x * factor)(100)
    dataset = Held()
    dataset.lock.acquire()
    print(*DataLoader(dataset, num_workers=1, batch_size=None))
