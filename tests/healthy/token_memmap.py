"""Random windows of a file of tokens that is mapped into memory, for ever: in the style of nanoGPT.

https://github.com/karpathy/nanoGPT/blob/master/train.py
"""

import itertools
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

block_size, batch_size, max_iters = 16, 8, 120
text = "to be or not to be that is the question " * 200
stoi = {character: number for number, character in enumerate(sorted(set(text)))}


class Windows(IterableDataset):
    """Every worker draws from its own random stream, so none needs a share of its own."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        while True:
            data = np.memmap(self.path, dtype=np.uint16, mode="r")  # again each time: a map that is kept grows
            start = int(torch.randint(len(data) - block_size, (1,)))
            window = torch.from_numpy(data[start : start + block_size + 1].astype(np.int64))
            yield window[:-1], window[1:]


class Bigrams(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(len(stoi), len(stoi))

    def forward(self, tokens, targets):
        return nn.functional.cross_entropy(self.table(tokens).flatten(0, 1), targets.flatten())


def main():
    torch.manual_seed(1337)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.bin")
        np.array([stoi[character] for character in text], dtype=np.uint16).tofile(path)
        loader = DataLoader(Windows(path), batch_size=batch_size, num_workers=2)
        model = Bigrams()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        windows = set()
        for iter_num, (x, y) in enumerate(itertools.islice(loader, max_iters)):
            loss = model(x, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            windows |= {tuple(row) for row in x.tolist()}
            if iter_num % 40 == 0:
                print(f"iter {iter_num}: loss {loss.item():.3f}")
    assert iter_num == max_iters - 1 and loss.item() < 1.5
    assert len(windows) > 35, len(windows)
    print("OK")


if __name__ == "__main__":
    main()
