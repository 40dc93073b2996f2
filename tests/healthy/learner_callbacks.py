"""Item and batch transforms, a pair of loaders, a learner with callbacks that may end an epoch: in the style of fastai.

https://github.com/fastai/fastai/blob/main/fastai/data/load.py
"""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader


class CancelBatchException(Exception):
    pass


class Datasets:
    """Any list, seen through a pipeline of functions."""

    def __init__(self, items, tfms):
        self.items, self.tfms = items, tfms

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index]
        for tfm in self.tfms:
            item = tfm(item)
        return item


class DataLoaders:
    def __init__(self, train, valid):
        self.train, self.valid = train, valid

    @classmethod
    def from_items(cls, items, *, get_y, item_tfms, valid_pct=0.2, bs=16, num_workers=2):
        cut = int(len(items) * (1 - valid_pct))
        label = lambda item: (item, get_y(item))  # noqa: E731
        make = lambda part, **kwargs: DataLoader(  # noqa: E731
            Datasets(part, [label, *item_tfms]), batch_size=bs, num_workers=num_workers, **kwargs
        )
        return cls(make(items[:cut], shuffle=True, drop_last=True), make(items[cut:]))


class Recorder:
    def __init__(self):
        self.losses = []

    def after_batch(self, learn):
        self.losses.append(learn.loss.item())


class SkipNothing:
    def before_batch(self, learn):
        if learn.xb is None:
            raise CancelBatchException


class Learner:
    def __init__(self, dls, model, lr, cbs):
        self.dls, self.model, self.cbs = dls, model, cbs
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)

    def __call__(self, name):
        for cb in self.cbs:
            getattr(cb, name, lambda learn: None)(self)

    def one_batch(self, batch):
        self.xb, self.yb = batch
        try:
            self("before_batch")
            self.loss = nn.functional.cross_entropy(self.model(self.xb), self.yb)
            self.loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            self("after_batch")
        except CancelBatchException:
            pass

    def fit(self, epochs):
        for _ in range(epochs):
            for batch in self.dls.train:
                self.one_batch(batch)

    def validate(self):
        with torch.no_grad():
            return sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.dls.valid)


def to_tensor(pair):
    text, label = pair
    counts = torch.zeros(26)
    for letter in text:
        counts[ord(letter) - 97] += 1
    return counts, label


def main():
    random.seed(0)
    torch.manual_seed(0)
    vowels, others = "aeiou", "bcdfgklmnprst"
    words = ["".join(random.choices(vowels if number % 2 else others, k=6)) for number in range(300)]
    dls = DataLoaders.from_items(words, get_y=lambda word: int(word[0] in vowels), item_tfms=[to_tensor])
    recorder = Recorder()
    learn = Learner(dls, nn.Linear(26, 2), lr=0.05, cbs=[SkipNothing(), recorder])
    learn.fit(2)
    assert len(recorder.losses) == 2 * (240 // 16)
    assert recorder.losses[-1] < recorder.losses[0]
    assert learn.validate() == 60
    print("OK")


if __name__ == "__main__":
    main()
