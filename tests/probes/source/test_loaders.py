"""`DataLoader(…)`, however it is written."""

import pytest

from antifreeze.doctor.facts import LoaderCall, Source

from .conftest import HEAD, Read


def only(source: Source) -> LoaderCall:
    (loader,) = source.loaders
    return loader


@pytest.mark.parametrize(
    "text",
    [
        "from torch.utils.data import DataLoader\nDataLoader(x)",
        "from torch.utils.data import DataLoader as Loader\nLoader(x)",
        "import torch\ntorch.utils.data.DataLoader(x)",
        "import torch.utils.data as data\ndata.DataLoader(x)",
        "from torch.utils import data\ndata.DataLoader(x)",
        "from torch.utils.data import *\nDataLoader(x)",
        "from torch.utils.data.dataloader import DataLoader\nDataLoader(x)",
        "import torch\nLoader = torch.utils.data.DataLoader\nLoader(x)",
        "from antifreeze import DataLoader\nDataLoader(x)",
        "from torchdata.stateful_dataloader import StatefulDataLoader\nStatefulDataLoader(x)",
        "from torch_geometric.loader import DataLoader\nDataLoader(x)",
        "def f():\n    from torch.utils.data import DataLoader\n    return DataLoader(x)",
    ],
)
def test_a_loader_is_known_by_any_name(read: Read, text: str) -> None:
    assert only(read(text)).arguments == {"dataset": "x"}


@pytest.mark.parametrize(
    "text",
    ["class DataLoader: ...\nDataLoader(x)", "from mine import DataLoader\nDataLoader(x)", "obj.DataLoader(x)"],
)
def test_what_only_has_its_name_is_none(read: Read, text: str) -> None:
    assert read(text).loaders == ()


def test_arguments_have_the_names_of_torch(read: Read) -> None:
    call = only(read(HEAD + "loader = DataLoader(ds, 4, True, None, None, 2, collate_fn=lambda b: b)"))
    assert call.name == "loader"
    assert call.workers == 2
    assert call.arguments == {
        "dataset": "ds", "batch_size": "4", "shuffle": "True", "sampler": "None", "batch_sampler": "None",
        "num_workers": "2", "collate_fn": "lambda b: b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "workers"),
    [
        ("DataLoader(ds)", 0),
        ("N = 3\nDataLoader(ds, num_workers=N)", 3),
        ("def make(n):\n    return DataLoader(ds, num_workers=n)\nmake(5)", 5),
        ("DataLoader(ds, num_workers=args.workers)", None),
        ("N = 3\nN = 4\nDataLoader(ds, num_workers=N)", None),
        ("DataLoader(ds, num_workers=2 if gpu else 0)", None),
        ("DataLoader(ds, **given)", None),
        ("kw = {'num_workers': 7}\nDataLoader(ds, **kw)", 7),
        ("kw = dict(num_workers=7)\nDataLoader(ds, **kw)", 7),
        ("kw = {'batch_size': 7}\nkw.update(more)\nDataLoader(ds, **kw)", None),
        ("kw = {'batch_size': 7}\nkw['num_workers'] = 1\nDataLoader(ds, **kw)", None),
    ],
)
def test_the_number_of_workers_is_told_if_it_can_be(read: Read, text: str, workers: int | None) -> None:
    assert only(read(HEAD + text)).workers == workers


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("DataLoader(ds, multiprocessing_context='spawn')", "spawn"),
        ("DataLoader(ds, multiprocessing_context=mp.get_context('forkserver'))", "forkserver"),
        ("ctx = mp.get_context('spawn')\nDataLoader(ds, multiprocessing_context=ctx)", "spawn"),
        ("DataLoader(ds, multiprocessing_context=args.context)", None),
        ("DataLoader(ds)", None),
    ],
)
def test_the_start_method_is_told_if_it_is_written(read: Read, text: str, method: str | None) -> None:
    assert only(read(HEAD + text)).start_method == method


@pytest.mark.parametrize(
    "text",
    [
        "DataLoader(Mine())",
        "ds = Mine()\nDataLoader(ds)",
        "ds = torch.utils.data.Subset(Mine(), [1])\nDataLoader(ds)",
        "a, b = torch.utils.data.random_split(Mine(), [1, 2])\nDataLoader(a)",
        "def make():\n    return Mine()\nDataLoader(make())",
        "def loader(ds):\n    return DataLoader(ds)\nloader(Mine())",
        "class M:\n    def a(self):\n        self.ds = Mine()\n    def b(self):\n        return DataLoader(self.ds)",
    ],
)
def test_the_class_of_its_dataset_is_found(read: Read, text: str) -> None:
    source = read(f"{HEAD}class Mine(Dataset):\n    def __getitem__(self, i): return i\n{text}")
    assert only(source).datasets == ("Mine",)


def test_definitions_under_the_guard_that_workers_need_are_told(read: Read) -> None:
    source = read(
        HEAD
        + "def above(b): return b\n"
        + "if __name__ == '__main__':\n"
        + "    class Mine(Dataset):\n        def __getitem__(self, i): return i\n"
        + "    def collate(b): return b\n"
        + "    DataLoader(Mine(), collate_fn=collate, worker_init_fn=above)\n"
    )
    assert [(place.function, place.line) for place in only(source).guarded] == [("Mine", 8), ("collate", 10)]
    assert only(source).is_module_level is False


@pytest.mark.parametrize(
    ("text", "is_in_loop"),
    [
        ("for e in range(3):\n    DataLoader(ds)", True),
        ("def make():\n    return DataLoader(ds)\nfor e in range(3):\n    make()", True),
        ("for x in DataLoader(ds):\n    pass", False),
        ("def make():\n    return DataLoader(ds)\nmake()", False),
    ],
)
def test_a_loader_that_is_made_anew_is_told_apart(read: Read, text: str, is_in_loop: bool) -> None:
    assert only(read(HEAD + text)).is_in_loop is is_in_loop
