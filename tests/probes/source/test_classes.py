"""Which classes are datasets, and what is said about each."""

from pathlib import Path

import pytest

from antifreeze.doctor.facts import DatasetClass, Source
from antifreeze.probes.source import read_source

from .conftest import HEAD, Read


def only(source: Source) -> DatasetClass:
    (found,) = source.datasets
    return found


@pytest.mark.parametrize(
    "text",
    [
        "class Mine(Dataset): ...",
        "class Mine(torch.utils.data.Dataset): ...",
        "class Mine(Dataset[int]): ...",
        "class Mine(IterableDataset): ...",
        "from torchvision.datasets import ImageFolder\nclass Mine(ImageFolder): ...",
        "class Mine:\n    def __getitem__(self, i): ...\n    def __len__(self): ...\nDataLoader(Mine())",
        "class Mine:\n    def __iter__(self): ...\nds = Mine()\nDataLoader(ds)",
    ],
)
def test_a_dataset_is_known_by_its_base_or_by_its_use(read: Read, text: str) -> None:
    assert only(read(HEAD + text)).name == "Mine"


@pytest.mark.parametrize("text", ["class Bag:\n    def __getitem__(self, i): ...", "class Net(torch.nn.Module): ..."])
def test_other_classes_are_none(read: Read, text: str) -> None:
    assert read(HEAD + text).datasets == ()


def test_a_class_of_another_file_is_found_through_its_base_there(read: Read) -> None:
    source = read(
        "from lib import Base\nclass Mine(Base): ...",
        {"lib.__init__": "from .base import Base", "lib.base": HEAD + "class Base(Dataset): ..."},
    )
    assert {(each.name, each.place.file) for each in source.datasets} == {("Mine", "train.py"), ("Base", "lib/base.py")}


def test_where_it_is_defined_is_told(read: Read) -> None:
    source = read(
        HEAD
        + "def make():\n    class Local(Dataset): ...\n"
        + "if __name__ == '__main__':\n    class Guarded(Dataset): ...\n"
        + "class Plain(IterableDataset): ..."
    )
    said = {each.name: (each.is_local, each.is_under_main_guard, each.is_iterable) for each in source.datasets}
    assert said == {"Local": (True, False, False), "Guarded": (False, True, False), "Plain": (False, False, True)}


@pytest.mark.parametrize(
    ("body", "asks"),
    [
        ("def __iter__(self):\n    yield from range(9)", False),
        ("def __iter__(self):\n    for line in open('x'):\n        yield line.split()", False),
        ("def __iter__(self):\n    info = torch.utils.data.get_worker_info()\n    yield info", True),
        ("def __init__(self, rank):\n    self.rank = rank\ndef __iter__(self):\n    yield self.rank", True),
        ("def __iter__(self):\n    yield from self.mine()\ndef mine(self):\n    yield from self.my_shard", True),
        (
            "def __init__(self, source):\n    self.source = source\ndef __iter__(self):\n    yield from self.source",
            None,
        ),
        ("def __iter__(self):\n    yield from library.stream()", None),
    ],
)
def test_whether_a_stream_asks_for_its_share(read_dataset: Read, body: str, asks: bool | None) -> None:
    assert only(read_dataset(body, base="IterableDataset")).asks_for_worker_info is asks


def test_methods_that_change_what_samples_read_are_told(read_dataset: Read) -> None:
    source = read_dataset(
        """
        def __init__(self):
            self.reset()
            self.items = []
            self.epoch = mp.Value("i", 0)
        def reset(self):
            self.crop = 1
        def set_crop(self, crop):
            self.crop = crop
        def add(self, item):
            self.items.append(item)
        def set_epoch(self, epoch):
            self.epoch.value = epoch
        def note(self):
            self.unread = 1
        def __getitem__(self, i):
            self.load(i)
            return self.items[i], self.crop, self.epoch
        def load(self, i):
            self.crop += 1
        """
    )
    assert only(source).changed_by == {"set_crop": ("crop",), "add": ("items",)}


def test_a_script_in_a_package_may_leave_the_package_out_of_its_imports(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "data.py").write_text(HEAD + "class Mine(Dataset): ...\nloader = DataLoader(Mine(), num_workers=2)")
    (tmp_path / "train.py").write_text("from data import Mine, loader\nfor x in loader:\n    pass")
    source = read_source(tmp_path / "train.py")
    (loop,) = source.loops
    assert loop.loader is not None
    assert (loop.loader.file, source.loaders[0].datasets) == ("data.py", ("Mine",))
