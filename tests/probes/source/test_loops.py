"""Loops over loaders, in all their forms, and what is around them."""

import pytest

from antifreeze.doctor.facts import LoaderLoop, Source

from .conftest import HEAD, Read

TRAINER = """
class Trainer:
    def __init__(self, batches):
        self.batches = batches
    def fit(self):
        for x in self.batches:
            pass
Trainer(loader).fit()
"""
LOADER = HEAD + "loader = DataLoader(ds, num_workers=2)\n"  # line 6


def only(source: Source) -> LoaderLoop:
    (loop,) = source.loops
    return loop


@pytest.mark.parametrize(
    "text",
    [
        "for x in loader:\n    pass",
        "for i, x in enumerate(loader):\n    pass",
        "from tqdm import tqdm\nfor i, x in enumerate(tqdm(loader)):\n    pass",
        "for x in logger.log_every(loader, 10):\n    pass",
        "for a, b in zip(loader, others):\n    pass",
        "x = next(iter(loader))",
        "total = sum(x.sum() for x in loader)",
        "def train(batches):\n    for x in batches:\n        pass\ntrain(loader)",
        "def train():\n    for x in loader:\n        pass\ntrain()",
        TRAINER,
    ],
)
def test_a_loop_over_the_loader_is_found(read: Read, text: str) -> None:
    loop = only(read(LOADER + text))
    assert loop.loader is not None
    assert loop.loader.line == 6


@pytest.mark.parametrize(
    "text",
    [
        "for i in range(len(loader)):\n    pass",
        "for x in other:\n    pass",
        "def f(loader):\n    for x in loader: pass",
    ],
)
def test_other_loops_are_none(read: Read, text: str) -> None:
    assert read(LOADER + text).loops == ()


def test_a_loop_over_one_of_two_loaders_is_of_neither(read: Read) -> None:
    text = "if big:\n    l = DataLoader(a)\nelse:\n    l = DataLoader(b)\nfor x in l:\n    pass"
    assert only(read(HEAD + text)).loader is None


@pytest.mark.parametrize(
    ("text", "is_module_level", "called_from"),
    [
        ("for x in loader:\n    pass", True, None),
        ("if __name__ == '__main__':\n    for x in loader:\n        pass", False, None),
        ("def main():\n    for x in loader:\n        pass\nmain()", False, 10),
        ("def a():\n    for x in loader:\n        pass\ndef b():\n    a()\nb()", False, 12),
        ("def main():\n    for x in loader:\n        pass\nif __name__ == '__main__':\n    main()", False, None),
    ],
)
def test_what_runs_at_import_is_told(read: Read, text: str, is_module_level: bool, called_from: int | None) -> None:
    loop = only(read(LOADER + text))
    assert loop.is_module_level is is_module_level
    assert (loop.called_from and loop.called_from.line) == called_from


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("for e in range(3):\n    for x in loader:\n        pass", 7),
        ("while True:\n    for x in loader:\n        pass", 7),
        ("def train():\n    for x in loader:\n        pass\nfor e in range(3):\n    train()", 10),
        ("for x in loader:\n    pass", None),
    ],
)
def test_the_loop_over_epochs_is_found(read: Read, text: str, line: int | None) -> None:
    epochs = only(read(LOADER + text)).epochs
    assert (epochs and epochs.line) == line


def test_breaks_are_those_of_this_loop(read: Read) -> None:
    text = "for x in loader:\n    for y in x:\n        break\n    if y:\n        break\n"
    assert [place.line for place in only(read(LOADER + text)).breaks] == [11]


CURRICULUM = """
    class Mine(Dataset):
        def __init__(self):
            self.epoch, self.seen = 0, []
            self.shared = torch.zeros(1).share_memory_()
        def set_epoch(self, epoch):
            self.epoch = epoch
        def note(self, epoch):
            self.last = epoch
        def share(self, epoch):
            self.shared[0] = epoch
        def __getitem__(self, i):
            return self.epoch + self.shared[0]
    ds = Mine()
    other = Mine()
    loader = DataLoader(ds, num_workers=2, persistent_workers=True)
    for epoch in range(3):
        {call}
        for x in loader:
            pass
"""


@pytest.mark.parametrize("call", ["ds.set_epoch(epoch)", "loader.dataset.set_epoch(epoch)", "ds.epoch = epoch"])
def test_calls_that_change_what_samples_read_are_told(read: Read, call: str) -> None:
    (place,) = only(read(HEAD.replace("\n", "\n    ") + CURRICULUM.format(call=call))).dataset_calls
    assert place.text == call


@pytest.mark.parametrize(
    "call", ["ds.note(epoch)", "ds.share(epoch)", "other.set_epoch(epoch)", "model.set_epoch(epoch)"]
)
def test_calls_that_change_nothing_for_them_are_not(read: Read, call: str) -> None:
    assert only(read(HEAD.replace("\n", "\n    ") + CURRICULUM.format(call=call))).dataset_calls == ()
